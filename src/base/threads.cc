#include "base/threads.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/error.h"

namespace longshot {
namespace {

int count_ = 0;   // 0: not chosen yet
int active_ = 0;  // 0: all of them

// Each run holds a lock on one byte of a file: locks end with their process, however it ends.
int registry_ = -1;
constexpr off_t kMostRuns = 64;  // more are not counted

struct flock byte_lock(short type, off_t first, off_t count) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  return lock;
}

bool locked_by_others(off_t first, off_t count) {
  struct flock lock = byte_lock(F_WRLCK, first, count);
  return ::fcntl(registry_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int other_runs() {
  if (!locked_by_others(0, kMostRuns)) return 0;
  int runs = 0;
  for (off_t at = 0; at < kMostRuns; ++at) runs += locked_by_others(at, 1);
  return runs;
}

}  // namespace

void set_threads(int count) {
  require_usage(count >= 0 && count <= 1024, "threads must be 0 (all cores) to 1024, not {}", count);
  count_ = count > 0 ? count : omp_get_num_procs();
  active_ = count_;
  omp_set_num_threads(count_);
}

int threads() {
  if (count_ == 0) set_threads(0);
  return count_;
}

int active_threads() { return active_ > 0 ? active_ : threads(); }

void share_cores(const fs::path& registry) {
  if (registry_ >= 0) return;
  // Of all users: any may lock, none needs to write. Where it cannot be had, every run thinks it is alone.
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  registry_ = ::open(registry.c_str(), kFlags);
  if (registry_ < 0) registry_ = ::open(registry.c_str(), kFlags | O_CREAT, 0666);
  if (registry_ < 0) return;
  ::fchmod(registry_, 0666);  // the umask took rights away; fails where another user made the file, who did this
  for (off_t at = 0; at < kMostRuns; ++at) {
    const struct flock lock = byte_lock(F_WRLCK, at, 1);
    if (::fcntl(registry_, F_SETLK, &lock) == 0) break;
  }
  update_share();
}

void update_share() {
  if (registry_ >= 0) active_ = std::max(threads() / (1 + other_runs()), 1);
}

}  // namespace longshot
