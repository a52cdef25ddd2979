// One block of memory for everything a computation needs, laid out before it starts: no allocation and no page
// fault afterwards.
//
//   Workspace memory([&](Layout& at) { hidden = at.mat(tokens, dim); });
//
// The layout runs twice: once to measure, once with real addresses. It must ask for the same things both times.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/view.h"

namespace longshot {

class Layout {
 public:
  explicit Layout(std::byte* base) : base_(base) {}

  template <class T>
  std::span<T> array(int64_t count) {
    const size_t begin = used_;
    used_ += (static_cast<size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return {base_ ? reinterpret_cast<T*>(base_ + begin) : nullptr, static_cast<size_t>(count)};
  }
  Mat mat(int64_t rows, int64_t cols) { return {array<float>(rows * cols).data(), rows, cols}; }
  size_t used() const { return used_; }

 private:
  static constexpr size_t kAlign = 64;
  std::byte* base_;
  size_t used_ = 0;
};

class Workspace {
 public:
  Workspace() = default;
  // kReserved: only addresses, however many. Memory is taken where they are written to.
  enum class Kind { kMemory, kReserved };
  explicit Workspace(const std::function<void(Layout&)>& layout, Kind kind = Kind::kMemory);
  Workspace(Workspace&& other) noexcept { *this = std::move(other); }
  Workspace& operator=(Workspace&& other) noexcept;
  ~Workspace();
  size_t bytes() const { return bytes_; }
  // Gives the pages that lie wholly inside back to the system. What is read there from now on is 0.
  static void release(std::span<std::byte> part);

  static size_t measure(const std::function<void(Layout&)>& layout);

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

// The largest resident memory of this process since its start or the last reset, in bytes, without the pages of mapped
// files: those are the system's to drop.
size_t peak_memory_bytes();
void reset_peak_memory();

}  // namespace longshot
