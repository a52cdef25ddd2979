#pragma once
#include <fmt/format.h>

#include <string>

namespace longshot {

// What a shell runs before a program that must do with so many MiB. Sanitizers reserve terabytes of addresses: they count pages in use instead.
inline std::string with_memory(int mib) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return fmt::format("export ASAN_OPTIONS=hard_rss_limit_mb={0} TSAN_OPTIONS=hard_rss_limit_mb={0};", mib);
#else
  return fmt::format("ulimit -v {};", mib * 1024);
#endif
}

}  // namespace longshot
