// What the two passes of attention share: a head, its tiles of scores and what is added to them, its products.
#pragma once
#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "kernels/attention.h"
#include "kernels/attention_tile.h"

namespace longshot {

inline int64_t padded_dim(int64_t head_dim) { return round_up(head_dim, kPanel); }
inline int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

// Cuts one thread's scratch memory into pieces.
class Cutter {
 public:
  explicit Cutter(float* at) : at_(at) {}
  float* take(int64_t count) {
    float* piece = at_ ? at_ + used_ : nullptr;
    used_ += round_up(count, kPanel);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  float* at_;
  int64_t used_ = 0;
};

// A head of the queries of one sequence, and the head of the keys it looks at.
struct Head {
  int64_t sequence, head, key_head;
  int64_t index;  // sequence * H + head
};
inline Head head_of(const AttentionShape& shape, int64_t index) {
  const int64_t head = index % shape.heads;
  return {index / shape.heads, head, head / shape.group(), index};
}

inline RotateCopy with_rotation(RotateCopy copy, const Rotation& rotation, int64_t position, float direction) {
  if (rotation.cos.cols == 0 || copy.rows == 0) return copy;
  const int64_t row = rotation.fixed ? 0 : position - rotation.first;
  copy.cos = rotation.cos.row(row);
  copy.sin = rotation.sin.row(row);
  copy.pairs = rotation.cos.cols;
  copy.turn_stride = rotation.fixed ? 0 : rotation.cos.stride;
  copy.interleaved = rotation.interleaved;
  copy.direction = direction;
  return copy;
}

inline float score_scale(const AttentionShape& shape, const AttentionOptions& options) {
  return options.scale != 0 ? options.scale : 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
}

// ln sum_{d >= 0} e^(-m d) = -ln(1 - e^-m), also where e^-m is nearly 1.
inline double log_tail(double slope) { return -std::log(-std::expm1(-slope)); }

// What rounding to bf16 can make of |q| |k|: each number grows by at most 2^-8 of itself, and so do the norms.
constexpr float kBf16Longer = (1 + 0x1p-8f) * (1 + 0x1p-8f) * (1 + 0x1p-22f);

// m of a linear bias -m |d|, for the query at position i.
inline float slope_of(const DistanceBias& bias, int64_t head, int64_t i) {
  return bias.query_slopes.data ? bias.query_slopes(i - bias.first, head) : bias.slopes[static_cast<size_t>(head)];
}

// Queries [first, first + rows) of a sequence; `position` is of the first.
struct QueryRows {
  int64_t sequence, first, rows, position;
};

// The keys each of them sees, of those in `held`.
inline void visible_ranges(const VisibleKeys& visible, const QueryRows& q, KeyRange held, KeyRange* ranges) {
  const int64_t entry = q.sequence * visible.stride + q.first;
  for (int64_t r = 0; r < q.rows; ++r) {
    KeyRange range = held;
    const int64_t i = q.position + r, reach = visible.causal ? 1 : visible.window;
    if (reach > 0) range.last = std::min(range.last, i + reach);
    if (visible.window > 0) range.first = std::max(range.first, i - visible.window + 1);
    if (visible.first) range.first = std::max<int64_t>(range.first, visible.first[entry + r]);
    if (visible.last) range.last = std::min<int64_t>(range.last, visible.last[entry + r]);
    ranges[r] = range;
  }
}

// The distance bias of one head, as tiles of scores want it.
class HeadBias {
 public:
  static constexpr int64_t kRoom = kQueryTile + kKeyTile;  // distances in a tile

  // The gradient of a bias without a table has `gradient_columns`.
  HeadBias(const AttentionOptions& options, int64_t head, int64_t gradient_columns);

  // The closed form, a place in the table, or one in `room`, made for the tile.
  void set(ScoreTile& t, float* room) const;
  // Where the tile's gradient is summed: in d_bias itself, or in `room`, from where it is folded into d_bias.
  BiasGradient gradient(const ScoreTile& t, float* d_bias, float* room) const;
  void fold(const ScoreTile& t, const float* room, float* d_bias) const;

 private:
  struct Distances {
    int64_t least, most;
  };
  Distances visible(const ScoreTile& t) const;
  bool in_order(Distances d) const;
  int64_t column(int64_t distance) const;
  void fill_from_table(int64_t most, int64_t count, float* room) const;

  DistanceBias::Kind kind_;
  bool causal_;
  float slope_ = 0;
  ConstMat query_slopes_;    // [positions, 1] where slopes depend on the query
  int64_t first_query_ = 0;  // position of its first row
  const float* table_ = nullptr;
  int64_t zero_ = 0;   // column of distance 0
  int64_t ahead_ = 0;  // columns behind it
};

// The tiles of scores of one head.
class HeadScores {
 public:
  HeadScores(const AttentionOptions& options, const Head& h, int64_t gradient_columns = 0);

  // `visible`: [rows]; `room`: HeadBias::kRoom floats.
  struct Place {
    int64_t query0, rows, key0, cols;  // positions, sizes
    const KeyRange* visible;
    float *s, *room;
  };
  ScoreTile tile(const Place& place) const;
  void add_term(const ScoreTile& t) const;
  void add_term_gradient(const ScoreTile& t, const float* d_s) const;
  const HeadBias& bias() const { return bias_; }

 private:
  ScoreTerm::Tile term_tile(const ScoreTile& t) const;

  HeadBias bias_;
  ScoreTerm* term_;
  Head head_;
  uint64_t dropout_key_ = 0;
  uint32_t dropout_threshold_ = 0;
  float dropout_scale_ = 1;
};

// Products with a tile of scores s[rows, cols], row stride kKeyTile. Vectors have stride padded_dim(dim). Where the tile
// is causal, blocks no row sees are left out.
class TileProducts {
 public:
  struct Arithmetic {
    bool bf16 = false;         // operands are rounded
    float* scratch = nullptr;  // then: scratch_floats(dim)
  };
  TileProducts(const ScoreTile& t, int64_t dim, bool causal, Arithmetic arithmetic);
  static int64_t scratch_floats(int64_t dim, bool bf16);
  // s = x y^T for x[rows, D] and packed y[cols, D]
  void scores(const float* x, const float* y_panels, float* s) const;
  // out[rows, D] += s y for y[cols, D]
  void add_rows(const float* s, const float* y, float* out) const;
  // out[cols, D] += s^T x for x[rows, D]
  void add_columns(const float* s, const float* x, float* out) const;

 private:
  Causal trimmed(Causal causal) const { return whole_ ? Causal::kFull : causal; }
  void multiply(const TileProduct& p) const;
  int64_t rows_, cols_, dim_, dp_;
  int64_t diagonal_;
  bool whole_;
  Arithmetic arithmetic_;
};

}  // namespace longshot
