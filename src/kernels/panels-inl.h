// Stored panels as vectors of floats. Per-target code: included once per target by each kernel's .cc.
#if defined(LONGSHOT_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGSHOT_PANELS_INL_H_
#undef LONGSHOT_PANELS_INL_H_
#else
#define LONGSHOT_PANELS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

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
struct PanelRange {
  const Panels& w;
  int64_t panel, first, last;

  size_t apart() const { return panel_bytes(w.type, w.in); }
  const std::byte* data() const { return w.data + static_cast<size_t>(panel) * apart(); }
};

struct FloatReader {
  template <int P, class F>
  static HWY_INLINE void read(const PanelRange& range, F& f) {
    const DPanel d;
    const std::byte* panels = range.data();
    const size_t apart = range.apart();
    VPanel w[P * kVectors];
    for (int64_t k = range.first; k < range.last; ++k) {
      for (int v = 0; v < P * kVectors; ++v) {
        const auto* from = reinterpret_cast<const float*>(panels + v / kVectors * apart);
        w[v] = hn::Load(d, from + k * kPanel + v % kVectors * kLanes);
      }
      f(k, w);
    }
  }
};

struct Bf16Reader {
  template <int P, class F>
  static HWY_INLINE void read(const PanelRange& range, F& f) {
    const std::byte* panels = range.data();
    const size_t apart = range.apart();
    const int64_t last = range.last;
    int64_t k = range.first;
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

// to[i] = from[i] as a float, i < n. Reads and writes no further.
template <class Half>
HWY_INLINE void promote(const std::byte* from, int64_t n, float* to) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<Half, decltype(d)> dh;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto* at = reinterpret_cast<const Half*>(from) + i;
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, at)), d, to + i);
  }
  if (i == n) return;
  HWY_ALIGN Half rest[hn::MaxLanes(dh)] = {};
  HWY_ALIGN float wide[hn::MaxLanes(d)];
  std::memcpy(rest, from + static_cast<size_t>(i) * sizeof(Half), static_cast<size_t>(n - i) * sizeof(Half));
  hn::Store(hn::PromoteTo(d, hn::Load(dh, rest)), d, wide);
  std::copy_n(wide, n - i, to + i);
}

HWY_INLINE void promote(WeightType type, const std::byte* from, int64_t n, float* to) {
  if (type == WeightType::kMappedF16) return promote<hwy::float16_t>(from, n, to);
  promote<hwy::bfloat16_t>(from, n, to);
}

// Mapped rows become a panel of floats in the first cache, a few inputs at a time.
constexpr int64_t kPromoted = 64;
inline void promote_panel(const Panels& w, const PanelPart& part, float* to) {
  float rows[kPanel * kPromoted];
  const int64_t first = part.panel * kPanel, count = std::min(kPanel, w.out - first);
  for (int64_t i = 0; i < part.count; i += kPromoted) {
    const int64_t inputs = std::min(kPromoted, part.count - i);
    for (int64_t r = 0; r < count; ++r) {
      const auto at = static_cast<size_t>((first + r) * w.in + part.first + i);
      promote(w.type, w.data + at * sizeof(uint16_t), inputs, rows + r * kPromoted);
    }
    pack_panels(rows, kPromoted, count, inputs, to + i * kPanel);
  }
}

struct MappedReader {
  template <int P, class F>
  static HWY_INLINE void read(const PanelRange& range, F& f) {
    const DPanel d;
    HWY_ALIGN float floats[P * kPanel * kPromoted];
    VPanel w[P * kVectors];
    for (int64_t first = range.first; first < range.last; first += kPromoted) {
      const int64_t count = std::min(kPromoted, range.last - first);
      for (int p = 0; p < P; ++p)
        promote_panel(range.w, {range.panel + p, first, count}, floats + p * kPanel * kPromoted);
      for (int64_t i = 0; i < count; ++i) {
        for (int v = 0; v < P * kVectors; ++v)
          w[v] = hn::Load(d, floats + (v / kVectors * kPromoted + i) * kPanel + v % kVectors * kLanes);
        f(first + i, w);
      }
    }
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
