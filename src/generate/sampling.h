// Which token comes next: from the model's distribution to the one that is drawn from.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/options.h"

namespace longshot {

// In this order:
//
//   repetition   ln p(id) * penalty for every id among the last `repetition_window` tokens, then renormalised
//   top-k        the k most probable
//   top-p        of those, renormalised, the most probable ones until their sum reaches p
//   min-p        of those, the ones with at least min_p times the largest probability
//   temperature  p^(1/T), renormalised; 0: the most probable one
struct SamplingConfig {
  double temperature = 0.8;
  int64_t top_k = 40;   // 0: all
  double top_p = 0.95;  // 1: all
  double min_p = 0.05;  // 0: all
  double repetition_penalty = 1;
  int64_t repetition_window = 64;
  uint64_t seed = 1;

  void fields(Options& o);
  void validate() const;  // Error(kUsage) that names the option
};

struct Candidate {
  int32_t id = 0;
  double probability = 0;
};

// What is drawn from, the most probable first, ties by id; sums to 1. `log_p` is ln p of every id, `before` the tokens so far.
std::vector<Candidate> candidates(std::span<const float> log_p, std::span<const int32_t> before,
                                  const SamplingConfig& config);

// The candidate at `uniform`, in [0, 1), of the cumulated probabilities.
int32_t draw(std::span<const Candidate> candidates, double uniform);

}  // namespace longshot
