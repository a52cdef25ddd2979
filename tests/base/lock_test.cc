#include "base/lock.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "data/helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;

TEST(DirectoryLock, ASecondWriterIsRefusedAndTheHolderNamed) {
  const TemporaryDir dir;
  {
    const DirectoryLock held = DirectoryLock::inside(dir.path());
    const std::string message = error_of([&] { DirectoryLock::inside(dir.path()); });
    EXPECT_THAT(message, HasSubstr(fmt::format("pid {}", ::getpid())));
    EXPECT_THAT(message, HasSubstr(dir.path().string()));
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
  const DirectoryLock again = DirectoryLock::inside(dir.path());
  const DirectoryLock apart = DirectoryLock::beside(dir / "set");
  EXPECT_NE(error_of([&] { DirectoryLock::beside(dir / "set"); }), "");
}

TEST(DirectoryLock, AKilledHolderIsNoObstacle) {
  const TemporaryDir dir;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const DirectoryLock held = DirectoryLock::inside(dir.path());
    (void)!::write(ready[1], "x", 1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(error_of([&] { DirectoryLock::inside(dir.path()); }), HasSubstr(fmt::format("pid {}", child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(dir / ".lock"));
  { const DirectoryLock held = DirectoryLock::inside(dir.path()); }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(DirectoryLock, ForeignFilesAreLeftAlone) {
  const TemporaryDir dir;
  dir.file(".lock", "somebody's");
  EXPECT_THAT(error_of([&] { DirectoryLock::inside(dir.path()); }), HasSubstr("not a lock of Longshot's"));
  EXPECT_EQ(read_text(dir / ".lock"), "somebody's");
  fs::remove(dir / ".lock");
  const std::string elsewhere = dir.file("precious", "");
  fs::create_symlink(elsewhere, dir / ".lock");
  EXPECT_NE(error_of([&] { DirectoryLock::inside(dir.path()); }), "");
  EXPECT_EQ(read_text(elsewhere), "");
}

}  // namespace
}  // namespace longshot
