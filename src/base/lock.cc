#include "base/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"

namespace longshot {
namespace {

constexpr std::string_view kOurs = "longshot ";  // what a lock file begins with

std::string content(int fd) {
  char text[64];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  return {text, n > 0 ? static_cast<size_t>(n) : 0};
}

fs::path file_beside(const fs::path& dir) { return dir.parent_path() / ("." + dir.filename().string() + ".lock"); }

}  // namespace

DirectoryLock DirectoryLock::inside(const fs::path& dir) { return taken(dir, dir / ".lock"); }
DirectoryLock DirectoryLock::beside(const fs::path& dir) { return taken(dir, file_beside(dir)); }

std::optional<DirectoryLock> DirectoryLock::try_beside(const fs::path& dir) {
  DirectoryLock lock(file_beside(dir));
  if (lock.take(dir)) return std::nullopt;
  return lock;
}

DirectoryLock DirectoryLock::taken(const fs::path& dir, fs::path file) {
  DirectoryLock lock(std::move(file));
  if (const std::optional<std::string> holder = lock.take(dir))
    fail("{}: another process ({}) is writing there. Wait for it or stop it.", dir.string(),
         holder->empty() ? "just started" : "pid " + *holder);
  return lock;
}

DirectoryLock::DirectoryLock(fs::path file) : file_(std::move(file)) {}

std::optional<std::string> DirectoryLock::take(const fs::path& dir) {
  while (true) {
    Descriptor fd(::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
    require(fd.get() >= 0, "{}: cannot lock {}: {}", file_.string(), dir.string(), std::strerror(errno));
    struct stat status {};
    require(::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode), "{}: not a file, so {} cannot be locked",
            file_.string(), dir.string());
    const std::string held = content(fd.get());
    require(held.empty() || held.starts_with(kOurs), "{}: not a lock of Longshot's, so {} cannot be locked",
            file_.string(), dir.string());
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      require(errno == EWOULDBLOCK || errno == EINTR, "{}: cannot lock {}: {}", file_.string(), dir.string(),
              std::strerror(errno));
      if (errno == EINTR) continue;
      return held.substr(std::min(held.size(), kOurs.size()), held.find('\n') - kOurs.size());
    }
    if (!is_still(file_, fd.get())) continue;
    const std::string text = fmt::format("{}{}\n", kOurs, ::getpid());
    const bool written = ::ftruncate(fd.get(), 0) == 0 &&
                         ::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
    require(written, "{}: cannot write: {}", file_.string(), std::strerror(errno));
    fd_ = fd.release();
    return std::nullopt;
  }
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept
    : file_(std::move(other.file_)), fd_(std::exchange(other.fd_, -1)) {}

DirectoryLock& DirectoryLock::operator=(DirectoryLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(fd_, other.fd_);
  return *this;
}

DirectoryLock::~DirectoryLock() {
  if (fd_ < 0) return;
  if (is_still(file_, fd_)) ::unlink(file_.c_str());
  ::close(fd_);
}

}  // namespace longshot
