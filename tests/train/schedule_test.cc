#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace longshot {
namespace {

ScheduleConfig config(Schedule schedule) {
  ScheduleConfig c;
  c.schedule = schedule, c.lr = 2, c.warmup = 10, c.min_lr = 0.1;
  return c;
}

// The WikiText-103 recipe: 286000 updates, 16000 of warm-up, lr 1, floor 1e-4.
TEST(Schedule, ThePapersPoints) {
  ScheduleConfig c = config(Schedule::kPaper);
  c.lr = 1, c.warmup = 16000;
  EXPECT_DOUBLE_EQ(learning_rate(c, 286000, 0), 1e-7);
  EXPECT_DOUBLE_EQ(learning_rate(c, 286000, 16000), 1.0);
  EXPECT_NEAR(learning_rate(c, 286000, 151000), 0.50005, 1e-9);
  EXPECT_NEAR(learning_rate(c, 286000, 286000), 1e-4, 1e-12);
  EXPECT_NEAR(learning_rate(c, 286000, 8000), 0.5, 1e-6);
}

TEST(Schedule, WarmupRisesToTheTop) {
  for (const auto& [name, schedule] : kSchedules) {
    if (schedule == Schedule::kPaper) continue;
    const ScheduleConfig c = config(schedule);
    EXPECT_DOUBLE_EQ(learning_rate(c, 100, 0), 2.0 / 11) << name;
    EXPECT_DOUBLE_EQ(learning_rate(c, 100, 10), 2.0) << name;
  }
}

TEST(Schedule, Ends) {
  EXPECT_DOUBLE_EQ(learning_rate(config(Schedule::kConstant), 100, 100), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(config(Schedule::kLinear), 100, 55), 2.0 * (1 - 0.9 / 2));
  EXPECT_DOUBLE_EQ(learning_rate(config(Schedule::kLinear), 100, 100), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(config(Schedule::kCosine), 100, 55), 2.0 * 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(config(Schedule::kCosine), 100, 100), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(config(Schedule::kInverseSqrt), 100, 43), 2.0 * std::sqrt(11.0 / 44));
}

TEST(Schedule, RefusesNonsense) {
  ScheduleConfig c = config(Schedule::kCosine);
  c.warmup = 100;
  EXPECT_THROW(c.validate(100), Error);
  c.warmup = 10, c.lr = 0;
  EXPECT_THROW(c.validate(100), Error);
  c.lr = NAN;
  EXPECT_THROW(c.validate(100), Error);
}

}  // namespace
}  // namespace longshot
