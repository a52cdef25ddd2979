#include "kernels/int8_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int8_product.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/panels-inl.h"
// clang-format on

#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "kernels/few_rows.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

using DInt = hn::RebindToSigned<DPanel>;
using VInt = hn::Vec<DInt>;

// A pair of 16-bit numbers in each lane.
#if HWY_TARGET != HWY_SCALAR
using DShort = hn::Repartition<int16_t, DPanel>;
using VPairs = hn::Vec<DShort>;
HWY_INLINE VPairs load_pairs(const int8_t* from) {
  return hn::PromoteTo(DShort(), hn::LoadU(hn::Rebind<int8_t, DShort>(), from));
}
HWY_INLINE VPairs every_lane(int32_t pair) { return hn::BitCast(DShort(), hn::Set(DInt(), pair)); }
// sum + rest, taken together, grow by the products of pairs. `rest` stays 0 where the instruction adds up pairs.
HWY_INLINE VInt add_products(VPairs p, VPairs q, VInt sum, VInt& rest) {
  return hn::ReorderWidenMulAccumulate(DInt(), p, q, sum, rest);
}
HWY_INLINE VInt total(VInt sum, VInt rest) { return hn::RearrangeToOddPlusEven(sum, rest); }
#else
struct VPairs {
  int32_t first, second;
};
VPairs load_pairs(const int8_t* from) { return {from[0], from[1]}; }
VPairs every_lane(int32_t pair) { return {static_cast<int16_t>(static_cast<uint32_t>(pair) & 0xffff), pair >> 16}; }
VInt add_products(VPairs p, VPairs q, VInt sum, VInt&) {
  return hn::Add(sum, hn::Set(DInt(), p.first * q.first + p.second * q.second));
}
VInt total(VInt sum, VInt) { return sum; }
#endif

// p[i] = x[i] / t to the nearest, ties to even; returns t.
float FixedPointImpl(const float* x, int64_t n, int16_t* p) {
  constexpr float kMost = 32767;
  ColumnMax most;
  bool finite = true;
  for_columns(n, [&](auto d, int64_t c) HWY_ATTR {
    const auto v = hn::Abs(hn::LoadU(d, x + c));
    finite &= hn::AllTrue(d, hn::Le(v, hn::Set(d, std::numeric_limits<float>::max())));
    most.add(d, v);
  });
  const float t = finite ? most.total() / kMost : std::numeric_limits<float>::quiet_NaN();
  if (!(t >= std::numeric_limits<float>::min())) {
    std::fill_n(p, n, int16_t{0});
    return finite ? 0 : t;
  }
  HWY_ALIGN int32_t wide[kScaled];
  for_columns(n, [&](auto d, int64_t c) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    hn::StoreU(hn::NearestInt(hn::Div(hn::LoadU(d, x + c), hn::Set(d, t))), di, wide + c);
  });
  for (int64_t i = 0; i < n; ++i) p[i] = static_cast<int16_t>(wide[i]);
  return t;
}

// sum[r, lane] = sum p q over the 64 inputs of a block.
template <int R, int P>
struct BlockSums {
  static constexpr int V = P * kVectors;
  VInt sum[R][V], rest[R][V];

  HWY_INLINE BlockSums(const int32_t* pairs, const int8_t* numbers) {
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < V; ++v) sum[r][v] = rest[r][v] = hn::Zero(DInt());
    }
    for (int64_t pair = 0; pair < kScaled / 2; ++pair, pairs += R, numbers += kInt8Pair) {
      VPairs q[V];
      for (int v = 0; v < V; ++v) q[v] = load_pairs(numbers + v * 2 * kLanes);
      for (int r = 0; r < R; ++r) {
        const VPairs p = every_lane(pairs[r]);
        for (int v = 0; v < V; ++v) sum[r][v] = add_products(p, q[v], sum[r][v], rest[r][v]);
      }
    }
  }
  HWY_INLINE VPanel of(int r, int v) const { return hn::ConvertTo(DPanel(), total(sum[r][v], rest[r][v])); }
};

// y[R, P panels] of the rows from `row` on. They stand side by side.
template <int R, int P>
HWY_NOINLINE void int8_block(const Int8Call& call, int64_t row, int64_t panel) {
  constexpr int V = P * kVectors;
  const DPanel d;
  const int64_t blocks = call.blocks();
  const Int8Place place = int8_place(call.w.in, panel, 0);
  const std::byte* at = call.w.data;
  const int32_t* pairs = call.pairs + row * blocks * kScaled / 2;
  const float* scales = call.scales + row * blocks;
  HWY_ALIGN float out[R * P * kPanel] = {};
  for (int64_t block = 0; block < blocks; ++block, at += kInt8BlockBytes, pairs += R * kScaled / 2, scales += R) {
    const BlockSums<R, P> sums(pairs, reinterpret_cast<const int8_t*>(at + place.numbers));
    const auto* own = reinterpret_cast<const float*>(at + place.scales);
    for (int v = 0; v < V; ++v) {
      const VPanel s = hn::Load(d, own + v * kLanes);
      for (int r = 0; r < R; ++r) {
        float* to = out + (r * V + v) * kLanes;
        const VPanel scale = hn::Mul(hn::Set(d, scales[r]), s);
        hn::Store(hn::MulAdd(sums.of(r, v), scale, hn::Load(d, to)), d, to);
      }
    }
  }
  const int64_t column = panel * kPanel, columns = std::min(P * kPanel, call.w.out - column);
  const int64_t rows = std::min<int64_t>(R, call.y.rows - row);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(out + r * P * kPanel, columns, call.y.row(row + r) + column);
}

template <int R>
void int8_panels(const Int8Call& call, int64_t first, int64_t last) {
  constexpr int P = panels_beside(R);
  int64_t panel = first;
  for (; panel + P <= last; panel += P) {
    for (int64_t row = 0; row < call.y.rows; row += R) int8_block<R, P>(call, row, panel);
  }
  for (; panel < last; ++panel) {
    for (int64_t row = 0; row < call.y.rows; row += R) int8_block<R, 1>(call, row, panel);
  }
}

void Int8Impl(const Int8Call& call, int64_t first, int64_t last) {
  with_height<HWY_MIN(kMostRows, kRowHeight)>(
      call.height, [&](auto height) HWY_ATTR { int8_panels<decltype(height)::value>(call, first, last); });
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {
namespace {

HWY_EXPORT(Int8Impl);
HWY_EXPORT(FixedPointImpl);

// Row `row` of x as Int8Call has it; a row past the last is 0.
void fix_row(ConstMat x, int64_t row, int64_t height, int32_t* pairs, float* scales) {
  const int64_t blocks = (x.cols + kScaled - 1) / kScaled, first = row / height * height;
  int32_t* to = pairs + first * blocks * kScaled / 2 + row % height;
  float* scale = scales + first * blocks + row % height;
  for (int64_t block = 0; block < blocks; ++block, scale += height) {
    int16_t p[kScaled] = {};
    *scale = 0;
    if (row < x.rows) {
      const int64_t k = block * kScaled;
      *scale = HWY_DYNAMIC_DISPATCH(FixedPointImpl)(x.row(row) + k, std::min(kScaled, x.cols - k), p);
    }
    for (int64_t i = 0; i < kScaled; i += 2, to += height) {
      const auto low = static_cast<uint16_t>(p[i]), high = static_cast<uint16_t>(p[i + 1]);
      *to = static_cast<int32_t>(uint32_t{high} << 16 | low);
    }
  }
}

}  // namespace

void int8_product(Context& context, ConstMat x, const Panels& w, Mat y) {
  assert(x.cols == w.in && y.rows == x.rows && y.cols == w.out);
  if (x.rows == 0) return;
  const ZoneTimer timer(context, Zone::kGemm);
  const int64_t height = std::min<int64_t>(row_height(x.rows), kMostRows), rows = round_up(x.rows, height);
  const int64_t blocks = (w.in + kScaled - 1) / kScaled, numbers = rows * blocks * kScaled / 2;
  float* scales = context.scratch(rows * blocks + numbers + kPanel).data();
  auto* pairs = reinterpret_cast<int32_t*>(scales + round_up(rows * blocks, kPanel));
  constexpr int64_t kWorthThreads = 1 << 13;  // numbers
  context.ranges(rows, std::max<int64_t>(kWorthThreads / std::max<int64_t>(w.in, 1), 1),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) fix_row(x, row, height, pairs, scales);
                 });
  const Int8Call call{pairs, scales, height, w, y};
  const PanelPieces pieces(w, x.rows, context.active());
  context.tasks(pieces.count, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(Int8Impl)(call, pieces.first(i), pieces.first(i + 1));
  });
}

}  // namespace longshot
#endif  // HWY_ONCE
