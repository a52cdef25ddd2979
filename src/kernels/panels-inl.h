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

struct Int8Reader {
  static constexpr WeightType kType = WeightType::kInt8;
  template <int P, class F>
  static HWY_INLINE void read(const std::byte* panels, size_t apart, int64_t first, int64_t last, F& f) {
    constexpr int64_t kBlock = kPanel * (static_cast<int64_t>(sizeof(float)) + kScaled);  // bytes
    const DPanel d;
    const hn::RebindToSigned<DPanel> di;
    const hn::Rebind<int8_t, DPanel> d8;
    VPanel w[P * kVectors], scale[P * kVectors];
    for (int64_t begin = first / kScaled * kScaled; begin < last; begin += kScaled) {
      const std::byte* block = panels + begin / kScaled * kBlock;
      for (int v = 0; v < P * kVectors; ++v) {
        const auto* scales = reinterpret_cast<const float*>(block + v / kVectors * apart);
        scale[v] = hn::Load(d, scales + v % kVectors * kLanes);
      }
      const int64_t end = std::min(begin + kScaled, last);
      for (int64_t k = std::max(begin, first); k < end; ++k) {
        for (int v = 0; v < P * kVectors; ++v) {
          const auto* numbers = reinterpret_cast<const int8_t*>(block + v / kVectors * apart) + kPanel * sizeof(float);
          const auto q = hn::PromoteTo(di, hn::LoadU(d8, numbers + (k - begin) * kPanel + v % kVectors * kLanes));
          w[v] = hn::Mul(scale[v], hn::ConvertTo(d, q));
        }
        f(k, w);
      }
    }
  }
};

// f(reader) for the reader of a type.
template <class F>
HWY_INLINE void with_reader(WeightType type, F&& f) {
  switch (type) {
    case WeightType::kF32:
      return f(FloatReader());
    case WeightType::kBf16:
      return f(Bf16Reader());
    case WeightType::kInt8:
      return f(Int8Reader());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();
#endif
