#include "kernels/attention_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_tile.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/simd-inl.h"
// clang-format on

#include <hwy/cache_control.h>

#include <algorithm>

#include "base/rng.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

// The visible columns [lo, hi) of row r.
struct Range {
  int64_t lo, hi;
};
HWY_INLINE Range visible(const ScoreTile& t, int64_t r) {
  const int64_t lo = std::clamp<int64_t>(t.visible[r].first - t.key0, 0, t.cols);
  return {lo, std::clamp<int64_t>(t.visible[r].last - t.key0, lo, t.cols)};
}

// bias(c) for the vector of columns c, c + 1, ..
class RowBias {
 public:
  HWY_INLINE RowBias(const ScoreTile& t, int64_t r)
      : slope_(t.slopes ? t.slopes[r * t.slope_stride] : t.slope),
        distance0_(t.query0 + r - t.key0),
        table_(t.table ? t.table + t.table_zero - distance0_ : nullptr) {}
  HWY_INLINE Vec add(D32 d, int64_t c, Vec s) const {
    if (table_) return hn::Add(s, hn::LoadU(d, table_ + c));
    const Vec distance = hn::Sub(hn::Set(d, static_cast<float>(distance0_ - c)), hn::Iota(d, 0.0f));
    return hn::NegMulAdd(hn::Set(d, slope_), distance, s);
  }

 private:
  float slope_;
  int64_t distance0_;
  const float* table_;
};

// f(c, s) for every vector of the row that holds a visible column; lanes outside [lo, hi) are passed as -inf.
// The other columns of the padded row are set to 0.
template <class F>
HWY_INLINE void for_scores(const ScoreTile& t, int64_t r, Range range, F&& f) {
  const D32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* s = t.s + r * kKeyTile;
  const RowBias bias(t, r);
  const Vec minus_infinity = hn::Set(d, -HUGE_VALF);
  int64_t c = range.lo / lanes * lanes;
  for (int64_t z = 0; z < c; z += lanes) hn::StoreU(hn::Zero(d), d, s + z);
  if (c < range.lo) {
    const auto keep = hn::AndNot(hn::FirstN(d, range.lo - c), hn::FirstN(d, std::max<int64_t>(range.hi - c, 0)));
    f(c, hn::IfThenElse(keep, bias.add(d, c, hn::LoadU(d, s + c)), minus_infinity));
    c += lanes;
  }
  for (; c + lanes <= range.hi; c += lanes) f(c, bias.add(d, c, hn::LoadU(d, s + c)));
  if (c < range.hi) {
    f(c, hn::IfThenElse(hn::FirstN(d, range.hi - c), bias.add(d, c, hn::LoadU(d, s + c)), minus_infinity));
    c += lanes;
  }
  for (const int64_t end = round_up(t.cols, kPanel); c < end; c += lanes) hn::StoreU(hn::Zero(d), d, s + c);
}

HWY_INLINE void zero_row(const ScoreTile& t, int64_t r) {
  std::fill_n(t.s + r * kKeyTile, round_up(t.cols, kPanel), 0.0f);
}

HWY_INLINE uint32_t dropout_row_key(const ScoreTile& t, int64_t r) {
  return static_cast<uint32_t>(mix64(t.dropout_key ^ static_cast<uint64_t>(t.query0 + r)));
}

void TileSoftmaxImpl(const ScoreTile& t, float* row_max, float* row_sum, float* rescale) {
  const D32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < t.rows; ++r) {
    const Range range = visible(t, r);
    rescale[r] = 1;
    if (range.lo == range.hi) {
      zero_row(t, r);
      continue;
    }
    float* s = t.s + r * kKeyTile;
    Vec largest = hn::Set(d, -HUGE_VALF);
    for_scores(t, r, range, [&](int64_t c, Vec v) HWY_ATTR {
      hn::StoreU(v, d, s + c);
      largest = hn::Max(largest, v);
    });
    const float before = row_max[r];
    const float now = std::max(before, hn::GetLane(hn::MaxOfLanes(d, largest)));
    if (now == -HUGE_VALF) {
      zero_row(t, r);
      continue;
    }
    const Vec shift = hn::Set(d, now);
    Vec sum = hn::Zero(d);
    const int64_t begin = range.lo / lanes * lanes;
    for (int64_t c = begin; c < range.hi; c += lanes) {
      const Vec p = exp_vec(d, hn::Sub(hn::LoadU(d, s + c), shift));
      sum = hn::Add(sum, p);
      hn::StoreU(p, d, s + c);
    }
    if (t.dropout_threshold) {
      const uint32_t key = dropout_row_key(t, r);
      for (int64_t c = begin; c < range.hi; c += lanes) {
        const Vec keep = dropout_vec(d, key, static_cast<uint32_t>(t.key0 + c), t.dropout_threshold, t.dropout_scale);
        hn::StoreU(hn::Mul(keep, hn::LoadU(d, s + c)), d, s + c);
      }
    }
    if (before < now) rescale[r] = std::exp(before - now);
    row_max[r] = now;
    row_sum[r] = row_sum[r] * rescale[r] + hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

void TileProbabilitiesImpl(const ScoreTile& t, const float* lse) {
  const D32 d;
  for (int64_t r = 0; r < t.rows; ++r) {
    const Range range = visible(t, r);
    if (range.lo == range.hi || lse[r] == -HUGE_VALF) {
      zero_row(t, r);
      continue;
    }
    float* s = t.s + r * kKeyTile;
    const Vec shift = hn::Set(d, lse[r]);
    for_scores(t, r, range, [&](int64_t c, Vec v) HWY_ATTR { hn::StoreU(exp_vec(d, hn::Sub(v, shift)), d, s + c); });
  }
}

void TileScoreGradientImpl(const ScoreTile& t, float* dp, const float* delta, const BiasGradient& d_bias) {
  const D32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < t.rows; ++r) {
    const Range range = visible(t, r);
    float* s = t.s + r * kKeyTile;
    float* ds = dp + r * kKeyTile;
    const uint32_t key = t.dropout_threshold ? dropout_row_key(t, r) : 0;
    const Vec shift = hn::Set(d, delta[r]);
    const int64_t begin = range.lo / lanes * lanes;
    // Outside the visible range P is 0, but dP was not computed there and may hold anything.
    std::fill(ds, ds + begin, 0.0f);
    int64_t c = begin;
    for (; c < range.hi; c += lanes) {
      const Vec p = hn::LoadU(d, s + c);
      Vec g = hn::LoadU(d, ds + c);
      if (t.dropout_threshold) {
        const Vec keep = dropout_vec(d, key, static_cast<uint32_t>(t.key0 + c), t.dropout_threshold, t.dropout_scale);
        g = hn::Mul(g, keep);
        hn::StoreU(hn::Mul(p, keep), d, s + c);
      }
      g = hn::Mul(p, hn::Sub(g, shift));
      hn::StoreU(hn::IfThenElseZero(hn::Gt(p, hn::Zero(d)), g), d, ds + c);
    }
    std::fill(ds + c, ds + round_up(t.cols, kPanel), 0.0f);
    if (d_bias.row) {
      float* row = d_bias.row + d_bias.zero - (t.query0 + r - t.key0);
      for (c = range.lo; c + lanes <= range.hi; c += lanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, row + c), hn::LoadU(d, ds + c)), d, row + c);
      }
      for (; c < range.hi; ++c) row[c] += ds[c];
    }
  }
}

void ScaleRowsImpl(float* x, int64_t stride, const float* factor, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    if (factor[r] == 1.0f) continue;
    float* row = x + r * stride;
    const float f = factor[r];
    for_columns(cols, [&](auto d, int64_t c)
                          HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, row + c), hn::Set(d, f)), d, row + c); });
  }
}

constexpr int64_t kRowsAhead = 8;  // rows of a head lie pages apart, which no hardware prefetches

template <class X, class Y>
void rotate_rows(const RotateCopy& p, const X* first_x, Y* first_y) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const X* x = first_x + r * p.x_stride;
    Y* y = first_y + r * p.y_stride;
    if (r + kRowsAhead < p.rows) {
      for (int64_t c = 0; c < p.dim; c += kPanel) hwy::Prefetch(x + kRowsAhead * p.x_stride + c);
    }
    const float scale = p.scale;
    const float* cos = p.cos + r * p.turn_stride;
    const float* sin = p.sin + r * p.turn_stride;
    const int64_t turned = p.cos ? 2 * p.pairs : 0;
    if (turned && p.interleaved) {
      for (int64_t c = 0; c < p.pairs; ++c) {
        const float a = number(x + 2 * c) * scale, b = number(x + 2 * c + 1) * scale, sine = p.direction * sin[c];
        set_number(y + 2 * c, a * cos[c] - b * sine);
        set_number(y + 2 * c + 1, a * sine + b * cos[c]);
      }
    } else if (turned) {
      const X* high = x + p.pairs;
      Y* y_high = y + p.pairs;
      for_columns(p.pairs, [&](auto d, int64_t c) HWY_ATTR {
        const auto a = hn::Mul(load(d, x + c), hn::Set(d, scale));
        const auto b = hn::Mul(load(d, high + c), hn::Set(d, scale));
        const auto cosine = hn::LoadU(d, cos + c);
        const auto sine = hn::Mul(hn::LoadU(d, sin + c), hn::Set(d, p.direction));
        store(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), d, y + c);
        store(hn::MulAdd(a, sine, hn::Mul(b, cosine)), d, y_high + c);
      });
    }
    const X* x_rest = x + turned;
    Y* y_rest = y + turned;
    for_columns(p.dim - turned, [&](auto d, int64_t c) HWY_ATTR {
      store(hn::Mul(load(d, x_rest + c), hn::Set(d, scale)), d, y_rest + c);
    });
    std::fill(y + p.dim, y + p.padded, Y{});
  }
}

void RotateCopyImpl(const RotateCopy& p) {
  with_kind(p.x, [&](const auto* x) HWY_ATTR { with_kind(p.y, [&](auto* y) HWY_ATTR { rotate_rows(p, x, y); }); });
}

float DotImpl(const float* x, ConstNumbers y, int64_t n) {
  ColumnSum sum;
  with_kind(y, [&](const auto* numbers) HWY_ATTR {
    for_columns(n, [&](auto d, int64_t c) HWY_ATTR { sum.add(d, hn::Mul(hn::LoadU(d, x + c), load(d, numbers + c))); });
  });
  return sum.total();
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {

HWY_EXPORT(TileSoftmaxImpl);
HWY_EXPORT(TileProbabilitiesImpl);
HWY_EXPORT(TileScoreGradientImpl);
HWY_EXPORT(ScaleRowsImpl);
HWY_EXPORT(RotateCopyImpl);
HWY_EXPORT(DotImpl);

void tile_softmax(const ScoreTile& t, float* row_max, float* row_sum, float* rescale) {
  HWY_DYNAMIC_DISPATCH(TileSoftmaxImpl)(t, row_max, row_sum, rescale);
}
void tile_probabilities(const ScoreTile& t, const float* lse) { HWY_DYNAMIC_DISPATCH(TileProbabilitiesImpl)(t, lse); }
void tile_score_gradient(const ScoreTile& t, float* dp, const float* delta, const BiasGradient& d_bias) {
  HWY_DYNAMIC_DISPATCH(TileScoreGradientImpl)(t, dp, delta, d_bias);
}
void scale_rows(float* x, int64_t stride, const float* factor, int64_t rows, int64_t cols) {
  HWY_DYNAMIC_DISPATCH(ScaleRowsImpl)(x, stride, factor, rows, cols);
}
void rotate_copy(const RotateCopy& p) { HWY_DYNAMIC_DISPATCH(RotateCopyImpl)(p); }
float dot(const float* x, ConstNumbers y, int64_t n) { return HWY_DYNAMIC_DISPATCH(DotImpl)(x, y, n); }

}  // namespace longshot
#endif  // HWY_ONCE
