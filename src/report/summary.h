// What the runs say together: seeds of one configuration averaged, protocols told apart.
#pragma once
#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "run/results.h"

namespace longshot {

// How a perplexity was taken, all but the window. Numbers are compared within a protocol only.
struct EvalProtocol {
  static constexpr int64_t kStrideOfLength = 0;  // the stride changes with the length
  WindowMode mode = WindowMode::kNonoverlapping;
  std::string split{};
  Scored score = Scored::kSame;
  int64_t stride = kStrideOfLength;
  std::optional<std::string> data{};  // hash of the split
  int64_t tokens = 0;                 // scored

  auto operator<=>(const EvalProtocol&) const = default;
  bool matches(const EvalRecord& eval) const;
  std::string windows() const;  // "sliding windows, stride 32"
  std::string text() const;     // that, the split, how many tokens are scored and which
};

struct Stat {
  double mean = 0, low = 0, high = 0, deviation = 0;  // sample standard deviation; 0 for one value
  size_t count = 0;
};
std::optional<Stat> stat_of(const std::vector<double>& values);

struct Measured {
  bool asked = false;  // some run has this evaluation; without a stat none of them was finite
  std::optional<Stat> stat;
  OptionalNumber text_error{};  // standard error of the perplexity over the text, of one seed
};

// The runs that differ in nothing but the seed.
struct Group {
  std::string position;
  std::string label;    // the method's title, and what tells it from others of the same method and training length
  std::string differs;  // the options in which it differs from other groups, with its values: "dim 256, lr 0.002"
  int64_t train_length = 0;
  bool finished = true;
  std::vector<const RunRecord*> runs{};

  Measured perplexity(const EvalProtocol& protocol, int64_t length) const;
  std::optional<Stat> of(OptionalNumber RunRecord::*field) const;
  std::optional<Stat> of(OptionalCount RunRecord::*field) const;
  std::optional<Stat> of(OptionalNumber EvalRecord::*field, const EvalProtocol& protocol, int64_t length) const;
  std::optional<Stat> of(OptionalCount EvalRecord::*field, const EvalProtocol& protocol, int64_t length) const;
  const SpeedRecord* speed(SpeedWork work, int64_t length) const;  // null: not measured
  std::string text() const;                                        // "ALiBi trained at 64"
};

// What is more than these is no longer read by people, and findings compare everything with everything.
inline constexpr size_t kMostGroups = 1000, kMostLengths = 200, kMostProtocols = 50;

// Pointers into `results`. ALiBi first, then the order in which the methods appear; lengths rise. More than kMostGroups are
// refused.
std::vector<Group> groups_of(const Results& results);
// The main one first: non-overlapping, if there is one. Of more than kMostProtocols the first that appear.
std::vector<EvalProtocol> protocols_of(const Results& results);
// The shortest kMostLengths.
std::vector<int64_t> lengths_of(const Results& results, const EvalProtocol& protocol);
std::vector<int64_t> train_lengths_of(const Results& results);
std::vector<std::string> positions_of(const Results& results);

// What a token is: "byte" where the tokenizer's tokens are bytes.
std::string unit_of(const Results& results);
size_t most_seeds(const std::vector<Group>& groups);

}  // namespace longshot
