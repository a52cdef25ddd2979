// What the runs say together: seeds of one method averaged, protocols told apart, the saving stated.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "run/results.h"

namespace longshot {

// How a perplexity was taken, all but the window. Numbers are compared within a protocol only.
struct EvalProtocol {
  static constexpr int64_t kStrideOfLength = 0;  // the stride changes with the length
  std::string mode, split, score;
  int64_t stride = kStrideOfLength;

  bool operator==(const EvalProtocol&) const = default;
  bool matches(const EvalRecord& eval) const;
  std::string windows() const;  // "sliding windows, stride 32"
  std::string text() const;     // that, the split, and which tokens are scored
};

struct Stat {
  double mean = 0, low = 0, high = 0, deviation = 0;  // sample standard deviation; 0 for one value
  size_t count = 0;
};
std::optional<Stat> stat_of(const std::vector<double>& values);

struct Measured {
  bool asked = false;  // some run has this evaluation; without a stat none of them was finite
  std::optional<Stat> stat;
};

// The runs that differ in nothing but the seed.
struct Group {
  std::string position, variant;
  std::string label;  // the method's title, with the variant where several share method and training length
  int64_t train_length = 0;
  std::vector<const RunRecord*> runs{};

  Measured perplexity(const EvalProtocol& protocol, int64_t length) const;
  std::optional<Stat> of(OptionalNumber RunRecord::*field) const;
  std::optional<Stat> of(OptionalCount RunRecord::*field) const;
  std::optional<Stat> of(OptionalNumber EvalRecord::*field, const EvalProtocol& protocol, int64_t length) const;
  std::optional<Stat> of(OptionalCount EvalRecord::*field, const EvalProtocol& protocol, int64_t length) const;
  std::string text() const;  // "ALiBi trained at 64"
};

// Pointers into `results`. ALiBi first, then the order in which the methods appear; lengths rise.
std::vector<Group> groups_of(const Results& results);
std::vector<EvalProtocol> protocols_of(const Results& results);  // the main one first: non-overlapping, if there is one
std::vector<int64_t> lengths_of(const Results& results, const EvalProtocol& protocol);
std::vector<int64_t> train_lengths_of(const Results& results);
std::vector<std::string> positions_of(const Results& results);

// What becomes of a model past its training length.
struct Extrapolation {
  const Group* group = nullptr;
  int64_t longest = 0, best_length = 0;
  double at_train_length = 0, at_longest = 0, best = 0;
  const char* verdict() const;  // by at_longest / at_train_length: improves, holds, degrades, breaks
};
std::vector<Extrapolation> extrapolations(const std::vector<Group>& groups, const EvalProtocol& protocol,
                                          const std::vector<int64_t>& lengths);

// Trained short and tested at N, against trained at N: the paper's main claim.
struct Saving {
  const Group* shorter = nullptr;
  const Group* longer = nullptr;
  Stat short_perplexity, long_perplexity;  // both at N = longer->train_length
  // Fractions of the long training that the short one saves, 1 - short / long; of speed: gained, short / long
  // - 1.
  OptionalNumber time_saved{}, memory_saved{}, speed_gained{};
  // Perplexities closer than half a percent, or than the seeds' spread, count as the same.
  bool same() const;
  std::string sentence() const;
};
// ALiBi's (else the first method's) first, the shortest step first, the sinusoidal baseline first.
std::vector<Saving> savings(const std::vector<Group>& groups, const EvalProtocol& protocol);

}  // namespace longshot
