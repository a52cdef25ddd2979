#include "base/workspace.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"

namespace longshot {

size_t Workspace::measure(const std::function<void(Layout&)>& layout) {
  Layout counting(nullptr);
  layout(counting);
  return counting.used();
}

Workspace::Workspace(const std::function<void(Layout&)>& layout, Kind kind) : bytes_(measure(layout)) {
  if (bytes_ == 0) return;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (kind == Kind::kReserved ? MAP_NORESERVE : 0);
  void* address = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
  require(address != MAP_FAILED, "cannot allocate {:.1f} MiB: {}. Use a shorter length or a smaller batch.",
          static_cast<double>(bytes_) / (1 << 20), std::strerror(errno));
  if (kind == Kind::kMemory) ::madvise(address, bytes_, MADV_HUGEPAGE);  // fewer page faults and TLB misses
  base_ = static_cast<std::byte*>(address);
  Layout real(base_);
  layout(real);
}

Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Workspace::~Workspace() {
  if (base_) ::munmap(base_, bytes_);
}

void Workspace::release(std::span<std::byte> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data()), end = begin + part.size();
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(part.data() + (first - begin), last - first, MADV_DONTNEED);
}

size_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  size_t peak = 0, files = 0;  // kB
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> peak;
    if (word == "RssFile:") status >> files;
  }
  return (peak - std::min(peak, files)) * 1024;
}

void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace longshot
