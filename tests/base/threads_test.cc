#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace longshot {
namespace {

// Another run: counts itself, says so, waits to be told to end.
class OtherRun {
 public:
  explicit OtherRun(const fs::path& registry) {
    int ready[2], end[2];
    EXPECT_EQ(::pipe(ready) + ::pipe(end), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::close(end[1]);
      share_cores(registry);
      char byte = 0;
      if (::write(ready[1], &byte, 1) == 1) (void)!::read(end[0], &byte, 1);
      std::_Exit(0);
    }
    ::close(end[0]);
    ::close(ready[1]);
    end_ = end[1];
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~OtherRun() {
    ::close(end_);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
  int end_;
};

TEST(Threads, RunsShareTheCoresWhileTheyLast) {
  const fs::path registry = fs::temp_directory_path() / ("longshot-test-runs-" + std::to_string(::getpid()));
  set_threads(6);
  {
    const OtherRun first(registry);
    EXPECT_EQ(active_threads(), 6);  // not sharing yet
    {
      const OtherRun second(registry);
      share_cores(registry);
      EXPECT_EQ(active_threads(), 2);
      set_threads(2);
      update_share();
      EXPECT_EQ(active_threads(), 1);  // at least one
      set_threads(6);
    }
    update_share();
    EXPECT_EQ(active_threads(), 3);
  }
  update_share();
  EXPECT_EQ(active_threads(), 6);
  EXPECT_EQ(threads(), 6);
  fs::remove(registry);
  set_threads(0);
}

}  // namespace
}  // namespace longshot
