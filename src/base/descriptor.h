// A file descriptor with an owner.
#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

namespace longshot {

// Closes unless released.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// False where another process has removed or replaced the file between our opening and our locking it.
inline bool is_still(const std::filesystem::path& path, int fd) {
  struct stat ours {
  }, named{};
  return ::fstat(fd, &ours) == 0 && ::lstat(path.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
         ours.st_dev == named.st_dev;
}

}  // namespace longshot
