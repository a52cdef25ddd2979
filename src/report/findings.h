// What may be claimed: differences against their noise, the best method at each length, what becomes of a model past its
// training length, what training short saves.
#pragma once
#include "report/summary.h"

namespace longshot {

// A number with its 95% interval: mean - half_width .. mean + half_width. Over seeds where there are several, and over the
// text (stretches of the same tokens); the two add as squares.
struct Interval {
  double mean = 0;
  OptionalNumber half_width{};  // none: nothing is known of its error

  bool below_zero() const { return half_width && mean + *half_width < 0; }
  bool above_zero() const { return half_width && mean - *half_width > 0; }
};

// A configuration tested at a length.
struct Spot {
  const Group& group;
  int64_t length = 0;
};

// Loss of `a` minus loss of `b`, in nats, on the same tokens and with the same seeds where both have them. Nothing where one
// of them has no finite loss.
std::optional<Interval> loss_difference(const Spot& a, const Spot& b, const EvalProtocol& protocol);
// Inside its interval. Without one, closer than half a percent in perplexity counts as the same.
bool is_tie(const Interval& difference);
// A tie only because the noise is large: 2% of perplexity or more lie between the two.
bool is_too_noisy(const Interval& difference);

// What context beyond the training length does at `spot.length`, from the decomposition.
std::optional<Interval> context_beyond(const Spot& spot);
enum class ExtraText { kUnknown, kUsed, kNotUsed, kHarmful };
ExtraText use_of_extra_text(const Spot& spot);

// Trained at L and run at N: who is best.
struct Answer {
  int64_t train_length = 0, length = 0;
  const Group* best = nullptr;
  Stat perplexity;
  struct Tie {
    const Group* group = nullptr;
    bool too_noisy = false;
  };
  std::vector<Tie> ties{};  // as good within the noise
};
std::vector<Answer> answers(const std::vector<Group>& groups, const EvalProtocol& protocol,
                            const std::vector<int64_t>& lengths);

// What becomes of a model past its training length.
struct Extrapolation {
  const Group* group = nullptr;
  int64_t longest = 0, best_length = 0;
  int64_t holds_to = 0;  // the last length before the first at which perplexity is 2% higher or more
  double at_train_length = 0, at_longest = 0, best = 0;
  Interval change{};            // of the loss from the training length to the longest
  const char* verdict() const;  // improves, holds, degrades, breaks, not clear
};
std::vector<Extrapolation> extrapolations(const std::vector<Group>& groups, const EvalProtocol& protocol,
                                          const std::vector<int64_t>& lengths);

// a's speed over b's; nothing unless both were measured in turn. It may be claimed where the rounds of the two do not
// overlap and nothing else ran.
struct SpeedRatio {
  double ratio = 1;
  bool clear = false;
  bool reliable = false;
};
std::optional<SpeedRatio> speed_ratio(const SpeedRecord* a, const SpeedRecord* b);

// Trained short and tested at N, against trained at N: the paper's main claim.
struct Saving {
  const Group* shorter = nullptr;
  const Group* longer = nullptr;
  Stat short_perplexity, long_perplexity;  // both at N = longer->train_length
  Interval difference{};                   // of their losses
  // Fractions of the long training that the short one saves, 1 - short / long.
  OptionalNumber time_saved{}, memory_saved{};
  std::optional<SpeedRatio> speed{};  // of training
  bool same() const { return is_tie(difference); }
  std::string sentence() const;
};
// ALiBi's (else the first method's) first, the shortest step first, the sinusoidal baseline first.
std::vector<Saving> savings(const std::vector<Group>& groups, const EvalProtocol& protocol);

// How much sooner the model trained short has, at the longer length, what the one trained there has after a fifth, two
// fifths, .. of its training time. From validations while training.
struct Sooner {
  struct Point {
    double share = 0;          // of the long training's time
    double perplexity = 0;     // of the long training then
    OptionalNumber earlier{};  // 1 - time of the short one / time of the long one; none: it never got there
  };
  const Group* shorter = nullptr;
  const Group* longer = nullptr;
  OptionalNumber memory_saved{};  // in training: 1 - short / long
  std::vector<Point> points{};
};
std::vector<Sooner> sooner(const std::vector<Group>& groups);

// A validation loss at `length` against training time: seconds at the speed measured in turn, where it was.
struct TimedLoss {
  double seconds = 0, loss = 0;
};
std::vector<TimedLoss> validations_at(const Group& group, const RunRecord& run, int64_t length);

}  // namespace longshot
