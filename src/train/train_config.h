// The options of training.
#pragma once
#include <algorithm>

#include "train/optimizer.h"
#include "train/schedule.h"

namespace longshot {

struct TrainConfig {
  int64_t steps = 1000;
  int64_t batch_tokens = 8192;
  int64_t micro_batch_tokens = 0;
  uint64_t seed = 1;
  int64_t save_every = 0;
  double save_minutes = 10;
  int64_t eval_every = 0;
  std::vector<int64_t> eval_lengths;  // beside the training length
  int64_t log_every = 10;
  int64_t keep = 2;
  double max_seconds = 0;
  bool recompute = false;
  int64_t batch_groups = 8;
  Precision precision = Precision::kF32;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;

  // Sequences of a step.
  int64_t sequences(int64_t length) const { return std::max<int64_t>(batch_tokens / length, 1); }

  void fields(Options& o);
  // Fills in what follows from other options, and checks that the parts fit together; Error(kUsage) otherwise.
  void validate(int64_t length);
};

// Whether an option of training may change when a run is taken up again: what says how long to train, when to log,
// validate and save, and how to spend memory. Everything else decides what the weights become.
bool may_change_on_resume(const std::string& option);

}  // namespace longshot
