// The learning rate as a function of the number of updates done so far.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"

namespace longshot {

enum class Schedule { kConstant, kLinear, kCosine, kInverseSqrt, kPaper };
constexpr Choice<Schedule> kSchedules[] = {{"constant", Schedule::kConstant},
                                           {"linear", Schedule::kLinear},
                                           {"cosine", Schedule::kCosine},
                                           {"inverse-sqrt", Schedule::kInverseSqrt},
                                           {"paper", Schedule::kPaper}};

struct ScheduleConfig {
  Schedule schedule = Schedule::kCosine;
  double lr = 1e-3;
  std::optional<int64_t> warmup{};  // none, until validate() chooses
  double min_lr = 0.1;              // share of lr at the end (cosine, linear)
  double warmup_init_lr = 1e-7;     // paper only
  double paper_min_lr = 1e-4;       // paper only, absolute

  void fields(Options& o);
  // Chooses the warm-up where it is left open: a tenth of the steps, at most 100.
  void validate(int64_t steps);
};

//   warmup       lr (u + 1) / (warmup + 1)                                      u < warmup
//   constant     lr
//   linear       lr (1 - (1 - min) t)                                           t = (u - warmup) / (steps - warmup)
//   cosine       lr (min + (1 - min) (1 + cos(pi t)) / 2)
//   inverse-sqrt lr sqrt((warmup + 1) / (u + 1))
//   paper        u < warmup: init + u (lr - init) / warmup;  else: floor + (lr - floor) (1 + cos(pi t)) / 2
double learning_rate(const ScheduleConfig& config, int64_t steps, int64_t updates);

}  // namespace longshot
