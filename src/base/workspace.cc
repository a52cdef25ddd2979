#include "base/workspace.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace longshot {

size_t Workspace::measure(const std::function<void(Layout&)>& layout) {
  Layout counting(nullptr);
  layout(counting);
  return counting.used();
}

Workspace::Workspace(const std::function<void(Layout&)>& layout) : bytes_(measure(layout)) {
  if (bytes_ == 0) return;
  void* address = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(address != MAP_FAILED, "cannot allocate {:.1f} MiB: {}. Use a shorter length or a smaller batch.",
          static_cast<double>(bytes_) / (1 << 20), std::strerror(errno));
  ::madvise(address, bytes_, MADV_HUGEPAGE);  // advice only: fewer page faults and TLB misses
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

size_t peak_memory_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

}  // namespace longshot
