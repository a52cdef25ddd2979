// One writer at a time: a lock on a directory that other processes see.
#pragma once
#include <optional>

#include "base/files.h"

namespace longshot {

// Held from construction to destruction, and let go by the system however the process ends. The lock is on a small
// file (it holds the process's number) that goes with the lock; one left behind by a killed process is no obstacle.
class DirectoryLock {
 public:
  // DIR/.lock. The directory must be there.
  static DirectoryLock inside(const fs::path& dir);
  // .NAME.lock beside it, for a directory that is yet to appear or is replaced as a whole.
  static DirectoryLock beside(const fs::path& dir);
  // The same, or nothing where another process has it.
  static std::optional<DirectoryLock> try_beside(const fs::path& dir);

  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&& other) noexcept;
  ~DirectoryLock();

 private:
  // What another process that has it wrote there; nothing: it is ours now.
  std::optional<std::string> take(const fs::path& dir);
  static DirectoryLock taken(const fs::path& dir,
                             fs::path file);  // throws, with the holder's number, if it is not free
  explicit DirectoryLock(fs::path file);
  fs::path file_;
  int fd_ = -1;
};

}  // namespace longshot
