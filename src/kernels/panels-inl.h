// Stored panels as vectors of floats. Per-target code: included once per target by each kernel's .cc.
#if defined(LONGSHOT_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGSHOT_PANELS_INL_H_
#undef LONGSHOT_PANELS_INL_H_
#else
#define LONGSHOT_PANELS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/panels.h"
#include "kernels/simd-inl.h"
#include "kernels/tile_product.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

using DPanel = hn::CappedTag<float, kPanel>;
using VPanel = hn::Vec<DPanel>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DPanel()));
constexpr int kVectors = static_cast<int>(kPanel / kLanes);  // per input of a panel

// A reader goes through P panels that follow each other, input by input: f(k, w), w[P kVectors], for k in [first, last).

struct FloatReader {
  static constexpr WeightType kType = WeightType::kF32;
  template <int P, class F>
  static HWY_INLINE void read(const std::byte* panels, size_t apart, int64_t first, int64_t last, F& f) {
    const DPanel d;
    VPanel w[P * kVectors];
    for (int64_t k = first; k < last; ++k) {
      for (int v = 0; v < P * kVectors; ++v) {
        const auto* from = reinterpret_cast<const float*>(panels + v / kVectors * apart);
        w[v] = hn::Load(d, from + k * kPanel + v % kVectors * kLanes);
      }
      f(k, w);
    }
  }
};

struct Bf16Reader {
  static constexpr WeightType kType = WeightType::kBf16;
  template <int P, class F>
  static HWY_INLINE void read(const std::byte* panels, size_t apart, int64_t first, int64_t last, F& f) {
    int64_t k = first;
    if (k % 2 == 1 && k < last) one<P, true>(panels, apart, k++, f);
    for (; k + 2 <= last; k += 2) {
      one<P, false>(panels, apart, k, f);
      one<P, true>(panels, apart, k + 1, f);
    }
    if (k < last) one<P, false>(panels, apart, k, f);
  }

 private:
  // The second of a pair stands in the upper half of 32 bits, where a float has it.
  template <int P, bool kSecond, class F>
  static HWY_INLINE void one(const std::byte* panels, size_t apart, int64_t k, F& f) {
    const DPanel d;
    const hn::RebindToUnsigned<DPanel> du;
    VPanel w[P * kVectors];
    for (int v = 0; v < P * kVectors; ++v) {
      const auto* from = reinterpret_cast<const uint32_t*>(panels + v / kVectors * apart);
      const auto pair = hn::Load(du, from + k / 2 * kPanel + v % kVectors * kLanes);
      w[v] = hn::BitCast(d, kSecond ? hn::And(pair, hn::Set(du, 0xffff0000u)) : hn::ShiftLeft<16>(pair));
    }
    f(k, w);
  }
};

// Rows that go through a panel together, and panels that are read side by side: sums enough to hide the latency of FMA, and no
// more than there are registers.
constexpr bool kManyRegisters = kLanes >= 16;
constexpr int kRowHeight = kManyRegisters ? 12 : kVectors == 2 ? 6 : 3;
constexpr int panels_beside(int height) {
  const int most = std::clamp((kManyRegisters ? 24 : 12) / (height * kVectors), 1, 4);
  return most == 3 ? 2 : most;
}

// f(height) with a constant of at least `height`: 1, 2, 4, .. or kMost.
template <int kMost, int R = 1, class F>
HWY_INLINE void with_height(int64_t height, F&& f) {
  if constexpr (R < kMost) {
    if (height > R) return with_height<kMost, HWY_MIN(2 * R, kMost)>(height, f);
  }
  f(std::integral_constant<int, R>());
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();
#endif
