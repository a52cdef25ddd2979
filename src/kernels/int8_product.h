// Products with a matrix stored in int8. Inputs become 16-bit numbers with a scale for every 64 of them, as the matrix has:
//
//   x = t p,   t = max |x| / 32767 over 64 inputs,   p = x / t rounded to the nearest, ties to even
//   y = sum over blocks of 64 inputs of (t s) (sum p q)
//
// Inner sums are exact, |sum p q| <= 64 * 32767 * 127 < 2^31; sums over blocks are of floats, block after block. An input is off
// by at most max |x| / 65534 of its 64. Where one of them is not finite, its row of y is NaN.
#pragma once
#include "base/context.h"
#include "kernels/panels.h"

namespace longshot {

// y = x W^T:   x[n, in], y[n, out]
void int8_product(Context& context, ConstMat x, const Panels& w, Mat y);

constexpr int kMostRows = 4;  // that go through four panels together: sums of more would not fit the registers

// One call, as the kernels see it: rows in blocks of equal height, filled up with 0.
struct Int8Call {
  const int32_t* pairs;  // [row block][in / 2, height] two 16-bit numbers each, the first in the lower half
  const float* scales;   // [row block][in / 64, height]
  int64_t height;
  const Panels& w;
  Mat y;
  int64_t blocks() const { return (w.in + kScaled - 1) / kScaled; }
};

}  // namespace longshot
