// What the tests of kernels share: guarded matrices, every instruction set.
#pragma once
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <functional>
#include <vector>

#include "base/rng.h"
#include "base/view.h"

namespace longshot {

// A matrix whose rows begin at an odd address and are followed by values that must not change.
class Guarded {
 public:
  Guarded(int64_t rows, int64_t cols, int64_t offset, uint64_t stream)
      : rows_(rows), cols_(cols), offset_(offset), stride_(cols + 5) {
    data_.assign(static_cast<size_t>(offset + rows * stride_ + 8), kGuard);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        mat()(r, c) = static_cast<float>(normal(3, Stream::kTest, stream, static_cast<uint64_t>(r * cols + c)));
    }
  }
  Mat mat() { return {data_.data() + offset_, rows_, cols_, stride_}; }
  void expect_guards_intact() {
    for (int64_t i = 0; i < static_cast<int64_t>(data_.size()); ++i) {
      const int64_t column = (i - offset_) % stride_;
      const bool inside = i >= offset_ && i < offset_ + rows_ * stride_ && column < cols_;
      if (!inside) {
        ASSERT_EQ(data_[static_cast<size_t>(i)], kGuard) << "written outside at " << i;
      }
    }
  }

 private:
  static constexpr float kGuard = 12345;
  int64_t rows_, cols_, offset_, stride_;
  std::vector<float> data_;
};

inline void for_each_target(const std::function<void()>& body) {
  for (int64_t targets = hwy::SupportedTargets(); targets; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace longshot
