#include "base/load.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace longshot {
namespace {

void burn(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST(LoadMeter, SeesOtherProcesses) {
  const LoadMeter meter;
  const pid_t other = ::fork();
  if (other == 0) {
    burn(std::chrono::milliseconds(600));
    ::_exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::optional<double> load = meter.others();  // before it is waited for: its time is not ours
  ::waitpid(other, nullptr, 0);
  ASSERT_TRUE(load);
  EXPECT_GT(*load, 0) << "a process was busy meanwhile";
  EXPECT_LE(*load, 1);
}

}  // namespace
}  // namespace longshot
