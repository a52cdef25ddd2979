#include "kernels/tile_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tile_product.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/simd-inl.h"
// clang-format on

#include <hwy/cache_control.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

using DPanel = hn::CappedTag<float, kPanel>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DPanel()));
constexpr int kVectors = static_cast<int>(kPanel / kLanes);  // per row of a panel

// The register block: enough independent sums to hide the latency of FMA and few enough for the registers (32 with
// AVX-512, else 16), as nearly square as that allows, since each step of k loads its rows and its columns.
constexpr bool kManyRegisters = kLanes >= 16;
constexpr int kBlockPanels = kManyRegisters ? 2 : 1;
constexpr int kBlockRows = kManyRegisters ? 12 : kVectors == 2 ? 6 : 3;
constexpr int kRowGroup = 3;  // rows addressed from one pointer: base, base + stride, base + 2 stride

// The inner dimension is cut so that the panels of a block fit the first cache: 48 KiB where there is AVX-512, 32 KiB
// elsewhere.
ProductBlocking BlockingImpl() { return {.rows = kBlockRows, .depth = kManyRegisters ? 384 : 512}; }

// C[R, P panels] (+)= A[R, k0..k1) B
template <int R, int P, bool kTransposed>
HWY_INLINE void block_product(const TileProduct& p, const float* a, const float* b, float* c, int64_t k0, int64_t k1) {
  const DPanel d;
  constexpr int V = P * kVectors;
  constexpr int kGroups = (R + kRowGroup - 1) / kRowGroup;
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < P; ++q) hwy::Prefetch(c + r * p.c_stride + q * kPanel);
  }
  hn::Vec<DPanel> sum[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(d);
  }
  const int64_t stride = p.a_stride;
  const float* group[kGroups];
  for (int g = 0; g < kGroups; ++g) group[g] = a + k0 + g * kRowGroup * stride;
  a += k0 * stride;
  b += k0 * p.b_stride;
  for (int64_t k = k0; k < k1; ++k, b += p.b_stride) {
    hn::Vec<DPanel> bv[V];
    for (int v = 0; v < V; ++v) bv[v] = hn::LoadU(d, b + v / kVectors * p.b_panel + v % kVectors * kLanes);
    for (int r = 0; r < R; ++r) {
      const auto av = hn::Set(d, kTransposed ? a[r] : group[r / kRowGroup][r % kRowGroup * stride]);
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(av, bv[v], sum[r][v]);
    }
    if (kTransposed) {
      a += stride;
    } else {
      for (int g = 0; g < kGroups; ++g) ++group[g];
    }
  }
  for (int r = 0; r < R; ++r, c += p.c_stride) {
    for (int v = 0; v < V; ++v) {
      const auto before = p.accumulate ? hn::LoadU(d, c + v * kLanes) : hn::Zero(d);
      hn::StoreU(hn::Add(before, sum[r][v]), d, c + v * kLanes);
    }
  }
}

template <int R, int P, bool kTransposed>
HWY_INLINE void remainder_product(int64_t rows, const TileProduct& p, const float* a, const float* b, float* c,
                                  int64_t k0, int64_t k1) {
  if constexpr (R > 0) {
    if (rows == R) return block_product<R, P, kTransposed>(p, a, b, c, k0, k1);
    remainder_product<R - 1, P, kTransposed>(rows, p, a, b, c, k0, k1);
  }
}

// The columns of P panels from column j on.
template <int P, bool kTransposed>
void panels_product(const TileProduct& p, int64_t j) {
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
      block_product<kBlockRows, P, kTransposed>(p, a, b, c, k0, k1);
    } else {
      remainder_product<kBlockRows - 1, P, kTransposed>(p.m - i, p, a, b, c, k0, k1);
    }
  }
}

template <bool kTransposed>
void product(const TileProduct& p) {
  int64_t j = 0;
  for (; j + kBlockPanels * kPanel <= p.n; j += kBlockPanels * kPanel) panels_product<kBlockPanels, kTransposed>(p, j);
  for (; j < p.n; j += kPanel) panels_product<1, kTransposed>(p, j);
}

void TileProductImpl(const TileProduct& p) { p.a_transposed ? product<true>(p) : product<false>(p); }

#if HWY_TARGET != HWY_SCALAR
// Four floats of each of Lanes / 4 rows, which lie four rows apart.
template <class D>
HWY_INLINE hn::Vec<D> load_quads(D d, const float* x, int64_t stride) {
  constexpr size_t kCount = hn::MaxLanes(D());
  if constexpr (kCount <= 4) {
    return hn::LoadU(d, x);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kRows = kCount / 2;
    return hn::Combine(d, load_quads(half, x + kRows * stride, stride), load_quads(half, x, stride));
  }
}

// to[c kPanel + lane] = x[lane][c] for four columns c and a vector of lanes: four rows of four columns are turned in each
// block of 128 bits.
HWY_INLINE void turn_quads(const float* x, int64_t stride, float* to) {
  const DPanel d;
  const hn::Repartition<uint64_t, DPanel> d64;
  const auto v0 = load_quads(d, x, stride), v1 = load_quads(d, x + stride, stride);
  const auto v2 = load_quads(d, x + 2 * stride, stride), v3 = load_quads(d, x + 3 * stride, stride);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, v0, v1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, v2, v3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, v0, v1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, v2, v3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, to + kPanel);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, to + 2 * kPanel);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, to + 3 * kPanel);
}

// All rows of a panel, as many columns as can be turned. Returns how many.
HWY_INLINE int64_t turn_panel(const float* x, int64_t stride, int64_t dim, float* panel) {
  for (int64_t c = 0; c + 4 <= dim; c += 4) {
    for (int64_t lane = 0; lane < kPanel; lane += kLanes)
      turn_quads(x + lane * stride + c, stride, panel + c * kPanel + lane);
  }
  return dim / 4 * 4;
}
#else
int64_t turn_panel(const float*, int64_t, int64_t, float*) { return 0; }
#endif

void PackPanelsImpl(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float* panels) {
  for (int64_t first = 0; first < rows; first += kPanel, panels += dim * kPanel) {
    const int64_t count = std::min(kPanel, rows - first);
    const float* from = x + first * x_stride;
    int64_t c = 0;
    if (count == kPanel) {
      c = turn_panel(from, x_stride, dim, panels);
    } else {
      std::fill_n(panels, dim * kPanel, 0.0f);
    }
    for (; c < dim; ++c) {
      for (int64_t lane = 0; lane < count; ++lane) panels[c * kPanel + lane] = from[lane * x_stride + c];
    }
  }
}

template <class T>
HWY_INLINE void copy_row(const T* x, const StripCopy& p, float* y) {
  const DPanel d;
  const int64_t rest = p.columns % kPanel;
  for (int64_t s = 0; s < p.columns / kPanel; ++s, x += kPanel, y += p.y_strip) {
    for (int64_t lane = 0; lane < kPanel; lane += kLanes) hn::StoreU(load(d, x + lane), d, y + lane);
  }
  if (rest == 0) return;
  for (int64_t c = 0; c < rest; ++c) y[c] = number(x + c);
  std::fill(y + rest, y + kPanel, 0.0f);
}

void CopyStripsImpl(const StripCopy& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    with_kind(p.x + r * p.x_stride, [&](const auto* x) HWY_ATTR { copy_row(x, p, p.y + r * p.y_stride); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {

HWY_EXPORT(BlockingImpl);
HWY_EXPORT(TileProductImpl);
HWY_EXPORT(PackPanelsImpl);
HWY_EXPORT(CopyStripsImpl);

ProductBlocking product_blocking() { return HWY_DYNAMIC_DISPATCH(BlockingImpl)(); }
void tile_product(const TileProduct& p) { HWY_DYNAMIC_DISPATCH(TileProductImpl)(p); }
void copy_strips(const StripCopy& p) { HWY_DYNAMIC_DISPATCH(CopyStripsImpl)(p); }
void pack_panels(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float* panels) {
  HWY_DYNAMIC_DISPATCH(PackPanelsImpl)(x, x_stride, rows, dim, panels);
}

}  // namespace longshot
#endif  // HWY_ONCE
