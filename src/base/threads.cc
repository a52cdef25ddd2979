#include "base/threads.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace longshot {
namespace {

constexpr off_t kMostRuns = 64;  // more are not counted

struct flock byte_lock(off_t first, off_t count) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  return lock;
}

// Of open files, not of processes: a process may hold several shares.
bool locked_by_others(int file, off_t first, off_t count) {
  struct flock lock = byte_lock(first, count);
  return ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// Of all users: any may lock, none needs to write. Rights are given to a file made here and now, never to one that is
// found; one that is found must be a plain file with one name.
int open_registry(const char* path) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int made = ::open(path, kFlags | O_CREAT | O_EXCL, 0666);
  if (made >= 0) {
    ::fchmod(made, 0666);  // the umask took rights away
    return made;
  }
  const int found = ::open(path, kFlags);
  struct stat s {};
  if (found < 0 || (::fstat(found, &s) == 0 && S_ISREG(s.st_mode) && s.st_nlink == 1)) return found;
  ::close(found);
  return -1;
}

}  // namespace

CoreShare::CoreShare(const fs::path& registry) : file_(open_registry(registry.c_str())) {
  for (off_t at = 0; at < kMostRuns && file_ >= 0; ++at) {
    const struct flock lock = byte_lock(at, 1);
    if (::fcntl(file_, F_OFD_SETLK, &lock) == 0) break;
  }
}

CoreShare::CoreShare(CoreShare&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

CoreShare& CoreShare::operator=(CoreShare&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

CoreShare::~CoreShare() {
  if (file_ >= 0) ::close(file_);
}

int CoreShare::other_runs() const {
  if (file_ < 0 || !locked_by_others(file_, 0, kMostRuns)) return 0;
  int runs = 0;
  for (off_t at = 0; at < kMostRuns; ++at) runs += locked_by_others(file_, at, 1);
  return runs;
}

int CoreShare::of(int threads) const { return std::max(threads / (1 + other_runs()), 1); }

fs::path CoreShare::default_registry() {
  std::error_code error;
  const fs::path dir = fs::temp_directory_path(error);
  return (error ? fs::path("/tmp") : dir) / "longshot-runs";
}

}  // namespace longshot
