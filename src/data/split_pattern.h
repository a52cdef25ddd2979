// A regular expression that cuts text, in a time that the text's length bounds whatever the pattern is. PCRE2 enters
// here.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/watch.h"

namespace longshot {

// What the patterns of a tokenizer may spend on a text. A step is a part of a pattern tried, or a byte passed over.
class PatternBudget {
 public:
  static constexpr uint64_t kFreeSteps = 1 << 14, kStepsPerByte = 256;  // patterns of real tokenizers take 10 to 30
  explicit PatternBudget(const Watch& watch);                           // asked now and then; must outlive it
  ~PatternBudget();
  // So many bytes more are to be cut.
  void grant(size_t bytes) { granted_ += kStepsPerByte * bytes; }

 private:
  friend class SplitPattern;
  struct Context;
  int step(size_t position);
  bool counts_next();
  void begin(size_t position) { position_ = position; }
  void heed() const {
    if (watch_.should_stop()) throw Stopped();
  }

  const Watch& watch_;
  std::unique_ptr<Context> context_;
  uint64_t granted_ = kFreeSteps, steps_ = 0, searches_ = 0;
  uint64_t ask_at_ = 0;  // steps
  size_t position_ = 0;
  bool stopped_ = false, count_all_ = false;
};

class SplitPattern {
 public:
  enum class Kind {
    kText,      // no expression: the characters themselves
    kHarmless,  // an expression that takes a few steps wherever it is tried
    kUnknown
  };
  struct Match {
    size_t begin, end;
  };

  // Written for Oniguruma. What PCRE2 would understand otherwise is refused; `origin` is for messages.
  SplitPattern(const std::string& pattern, Kind kind, const std::string& origin);
  ~SplitPattern();

  // From left to right; none is empty.
  std::vector<Match> matches(std::string_view text, PatternBudget& budget) const;

 private:
  struct Codes;
  struct Search;
  int find(const Search& search, size_t from, size_t last, PatternBudget& budget) const;
  std::unique_ptr<Codes> codes_;
  std::string origin_;
};

}  // namespace longshot
