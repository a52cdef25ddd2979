#include "base/threads.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

namespace longshot {
namespace {

// Another run: counts itself, says so, waits to be killed.
class OtherRun {
 public:
  explicit OtherRun(const fs::path& registry) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    child_ = ::fork();
    if (child_ == 0) {
      share_cores(registry);
      if (::write(ready[1], "", 1) == 1) ::pause();
      std::_Exit(1);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~OtherRun() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
};

TEST(Threads, RunsShareTheCoresWhileTheyLast) {
  const fs::path registry = fs::temp_directory_path() / ("longshot-test-runs-" + std::to_string(::getpid()));
  set_threads(6);
  auto first = std::make_unique<OtherRun>(registry), second = std::make_unique<OtherRun>(registry);
  first.reset();
  auto third = std::make_unique<OtherRun>(registry);  // in the first one's place
  EXPECT_EQ(active_threads(), 6);                     // not sharing yet
  share_cores(registry);
  EXPECT_EQ(active_threads(), 2);
  set_threads(2);
  update_share();
  EXPECT_EQ(active_threads(), 1);  // at least one
  set_threads(6);
  second.reset();
  update_share();
  EXPECT_EQ(active_threads(), 3);
  third.reset();
  update_share();
  EXPECT_EQ(active_threads(), 6);
  EXPECT_EQ(threads(), 6);
  fs::remove(registry);
  set_threads(0);
}

}  // namespace
}  // namespace longshot
