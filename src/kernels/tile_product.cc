#include "kernels/tile_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tile_product.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/simd-inl.h"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

using DPanel = hn::CappedTag<float, kPanel>;
constexpr int kVectors = kPanel / static_cast<int>(hn::MaxLanes(DPanel()));  // per row of a panel
// Rows of the register block: enough independent sums to hide the latency of FMA, few enough for the registers.
constexpr int kBlockRows = kVectors == 1 ? 12 : kVectors == 2 ? 6 : 3;

// C[R, kPanel] (+)= A[R, k0..k1) B
template <int R, bool kTransposed>
HWY_INLINE void block_product(const TileProduct& p, const float* a, const float* b, float* c, int64_t k0, int64_t k1) {
  const DPanel d;
  constexpr int64_t kLanes = kPanel / kVectors;
  hn::Vec<DPanel> sum[R][kVectors];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = p.accumulate ? hn::LoadU(d, c + r * p.c_stride + v * kLanes) : hn::Zero(d);
    }
  }
  const float* row[R];
  for (int r = 0; r < R; ++r) row[r] = kTransposed ? a + r : a + r * p.a_stride;
  b += k0 * p.b_stride;
  for (int64_t k = k0; k < k1; ++k, b += p.b_stride) {
    hn::Vec<DPanel> bv[kVectors];
    for (int v = 0; v < kVectors; ++v) bv[v] = hn::LoadU(d, b + v * kLanes);
    for (int r = 0; r < R; ++r) {
      const auto av = hn::Set(d, kTransposed ? a[k * p.a_stride + r] : row[r][k]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(av, bv[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * p.c_stride + v * kLanes);
  }
}

template <int R, bool kTransposed>
HWY_INLINE void remainder_product(int64_t rows, const TileProduct& p, const float* a, const float* b, float* c,
                                  int64_t k0, int64_t k1) {
  if constexpr (R > 0) {
    if (rows == R) return block_product<R, kTransposed>(p, a, b, c, k0, k1);
    remainder_product<R - 1, kTransposed>(rows, p, a, b, c, k0, k1);
  }
}

template <bool kTransposed>
void product(const TileProduct& p) {
  for (int64_t j = 0; j < p.n; j += kPanel) {
    const float* b = p.b + j / kPanel * p.b_panel;
    int64_t first = 0;
    if (p.causal == Causal::kScores) {
      first = std::clamp<int64_t>((j - p.diagonal) / kBlockRows * kBlockRows, 0, p.m);
    }
    for (int64_t i = first; i < p.m; i += kBlockRows) {
      int64_t k0 = 0, k1 = p.k;
      if (p.causal == Causal::kRows) k1 = std::clamp<int64_t>(i + kBlockRows + p.diagonal, 0, p.k);
      if (p.causal == Causal::kColumns) k0 = std::clamp<int64_t>(i - p.diagonal, 0, p.k);
      const float* a = kTransposed ? p.a + i : p.a + i * p.a_stride;
      float* c = p.c + i * p.c_stride + j;
      if (p.m - i >= kBlockRows) {
        block_product<kBlockRows, kTransposed>(p, a, b, c, k0, k1);
      } else {
        remainder_product<kBlockRows - 1, kTransposed>(p.m - i, p, a, b, c, k0, k1);
      }
    }
  }
}

void TileProductImpl(const TileProduct& p) { p.a_transposed ? product<true>(p) : product<false>(p); }

void PackPanelsImpl(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float* panels) {
  for (int64_t first = 0; first < rows; first += kPanel, panels += dim * kPanel) {
    const int64_t count = std::min(kPanel, rows - first);
    if (count < kPanel) std::fill_n(panels, dim * kPanel, 0.0f);
    for (int64_t lane = 0; lane < count; ++lane) {
      const float* row = x + (first + lane) * x_stride;
      for (int64_t c = 0; c < dim; ++c) panels[c * kPanel + lane] = row[c];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {

HWY_EXPORT(TileProductImpl);
HWY_EXPORT(PackPanelsImpl);

void tile_product(const TileProduct& p) { HWY_DYNAMIC_DISPATCH(TileProductImpl)(p); }
void pack_panels(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float* panels) {
  HWY_DYNAMIC_DISPATCH(PackPanelsImpl)(x, x_stride, rows, dim, panels);
}

}  // namespace longshot
#endif  // HWY_ONCE
