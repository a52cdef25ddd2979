// renameat2 as on a file system that cannot exchange two names. For one file of a test program: it stands in for the
// system's own.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace longshot {

inline bool can_exchange = true;

}  // namespace longshot

extern "C" int stand_in(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept
    __asm__("renameat2");
// NOLINTNEXTLINE(misc-definitions-in-headers): of one file alone
extern "C" int stand_in(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
  if (longshot::can_exchange) return static_cast<int>(::syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
  errno = EINVAL;
  return -1;
}
