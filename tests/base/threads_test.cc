#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "base/context.h"
#include "formats/scratch.h"

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
      const CoreShare share(registry);
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

class CoreShareTest : public testing::Test {
 protected:
  fs::perms rights(const char* name) const { return fs::status(dir_ / name).permissions() & fs::perms::all; }

  ScratchDir dir_;
};

constexpr auto kOwnOnly = fs::perms::owner_read | fs::perms::owner_write;

TEST_F(CoreShareTest, RunsShareTheCoresWhileTheyLast) {
  const fs::path registry = dir_ / "runs";
  Context context(6);
  auto first = std::make_unique<OtherRun>(registry), second = std::make_unique<OtherRun>(registry);
  first.reset();
  auto third = std::make_unique<OtherRun>(registry);  // in the first one's place
  context.update_share();
  EXPECT_EQ(context.active(), 6);  // not sharing yet
  context.share_cores(CoreShare(registry));
  EXPECT_EQ(context.active(), 2);
  second.reset();
  context.update_share();
  EXPECT_EQ(context.active(), 3);
  third.reset();
  context.update_share();
  EXPECT_EQ(context.active(), 6);
  EXPECT_EQ(context.threads(), 6);
}

TEST_F(CoreShareTest, AProcessMayHoldSeveral) {
  const fs::path registry = dir_ / "runs";
  const CoreShare one(registry);
  EXPECT_EQ(one.of(6), 6);
  {
    const CoreShare two(registry), three(registry);
    EXPECT_EQ(one.of(6), 2);
    EXPECT_EQ(two.of(2), 1);  // at least one
  }
  EXPECT_EQ(one.of(6), 6);
  EXPECT_EQ(CoreShare(registry).of(6), 3);
}

TEST_F(CoreShareTest, ATemporaryDirectoryThatIsNoMoreStopsNothing) {
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", (dir_ / "gone").c_str(), 1);
  EXPECT_EQ(CoreShare::default_registry(), "/tmp/longshot-runs");
  EXPECT_GE(CoreShare().of(4), 1);
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
  EXPECT_EQ(CoreShare(dir_ / "gone" / "runs").of(4), 4);  // alone
}

// Rights are given to a file it makes, and to nothing that it finds.
TEST_F(CoreShareTest, WhatStandsThereKeepsItsRights) {
  { const CoreShare made(dir_ / "runs"); }
  EXPECT_EQ(rights("runs"), kOwnOnly | fs::perms::group_read | fs::perms::group_write | fs::perms::others_read |
                                fs::perms::others_write);

  std::ofstream(dir_ / "private") << "secret";
  fs::permissions(dir_ / "private", kOwnOnly);
  { const CoreShare found(dir_ / "private"); }
  EXPECT_EQ(rights("private"), kOwnOnly);

  fs::create_hard_link(dir_ / "private", dir_ / "linked");
  EXPECT_EQ(CoreShare(dir_ / "linked").of(4), 4);
  EXPECT_EQ(rights("linked"), kOwnOnly);

  fs::remove(dir_ / "linked");
  fs::create_symlink(dir_ / "private", dir_ / "symbolic");
  const OtherRun counted(dir_ / "private");
  EXPECT_EQ(CoreShare(dir_ / "symbolic").of(4), 4);
  EXPECT_EQ(rights("private"), kOwnOnly);

  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  const OtherRun other(dir_ / "pipe");
  EXPECT_EQ(CoreShare(dir_ / "pipe").of(4), 4);
  EXPECT_EQ(rights("pipe"), kOwnOnly);
}

TEST(Context, LoopsCoverEverythingOnce) {
  for (const int threads : {1, 3}) {
    Context context(threads);
    for (const int64_t n : {0, 1, 2, 7, 100}) {
      std::vector<int> tasks(100), ranges(100);
      const auto mark = [&](std::vector<int>& seen, int64_t i, int thread) {
        EXPECT_LT(thread, threads);
        ++seen[static_cast<size_t>(i)];
      };
      context.tasks(n, [&](int64_t i, int thread) { mark(tasks, i, thread); });
      context.ranges(n, 3, [&](int64_t begin, int64_t end, int thread) {
        EXPECT_GE(end - begin, std::min<int64_t>(n, 3));
        for (int64_t i = begin; i < end; ++i) mark(ranges, i, thread);
      });
      for (int64_t i = 0; i < 100; ++i) {
        const int expected = i < n;
        const auto at = static_cast<size_t>(i);
        EXPECT_TRUE(tasks[at] == expected && ranges[at] == expected) << n << ": " << i;
      }
    }
  }
}

}  // namespace
}  // namespace longshot
