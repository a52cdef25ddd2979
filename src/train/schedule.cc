#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace longshot {

void ScheduleConfig::fields(Options& o) {
  o.add("schedule", schedule, kSchedules, "of the learning rate");
  o.add("lr", lr, "highest learning rate");
  o.add("warmup", warmup, "steps of linear warm-up; empty: a tenth of the steps, at most 100");
  o.add("min-lr", min_lr, "last learning rate as a share of lr (linear, cosine)");
  o.add("warmup-init-lr", warmup_init_lr, "first learning rate (paper)");
  o.add("paper-min-lr", paper_min_lr, "last learning rate (paper)");
}

void ScheduleConfig::validate(int64_t steps) {
  if (!warmup) warmup = std::min<int64_t>(steps / 10, 100);
  require_usage(lr > 0 && std::isfinite(lr), "--lr must be positive, not {}", lr);
  require_usage(*warmup >= 0, "--warmup must not be negative, but is {}; without it, it is a tenth of the steps",
                *warmup);
  require_usage(*warmup < steps || schedule == Schedule::kConstant || schedule == Schedule::kInverseSqrt,
                "--warmup ({}) must be below --steps ({})", *warmup, steps);
  require_usage(min_lr >= 0 && min_lr <= 1, "--min-lr must be in [0, 1], not {}", min_lr);
  const auto rate = [](const char* name, double value) {
    require_usage(value >= 0 && std::isfinite(value), "--{} must not be negative, but is {}", name, value);
  };
  rate("warmup-init-lr", warmup_init_lr);
  rate("paper-min-lr", paper_min_lr);
}

double learning_rate(const ScheduleConfig& c, int64_t steps, int64_t updates) {
  const auto u = static_cast<double>(updates), warmup = static_cast<double>(c.warmup.value());
  const double t = std::clamp((u - warmup) / std::max(1.0, static_cast<double>(steps) - warmup), 0.0, 1.0);
  const double falling = 0.5 * (1 + std::cos(std::numbers::pi * t));
  if (c.schedule == Schedule::kPaper) {
    if (updates < c.warmup) return c.warmup_init_lr + u * (c.lr - c.warmup_init_lr) / warmup;
    return c.paper_min_lr + (c.lr - c.paper_min_lr) * falling;
  }
  if (updates < c.warmup) return c.lr * (u + 1) / (warmup + 1);
  switch (c.schedule) {
    case Schedule::kLinear:
      return c.lr * (1 - (1 - c.min_lr) * t);
    case Schedule::kCosine:
      return c.lr * (c.min_lr + (1 - c.min_lr) * falling);
    case Schedule::kInverseSqrt:
      return c.lr * std::sqrt((warmup + 1) / (u + 1));
    default:
      return c.lr;
  }
}

}  // namespace longshot
