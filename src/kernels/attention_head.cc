#include "kernels/attention_head.h"

#include <cassert>

#include "kernels/bf16.h"

namespace longshot {

HeadBias::HeadBias(const AttentionOptions& options, int64_t head, int64_t gradient_columns)
    : kind_(options.bias.kind), causal_(options.visible.causal) {
  const DistanceBias& bias = options.bias;
  if (kind_ == DistanceBias::Kind::kLinear) {
    if (bias.query_slopes.data) {
      query_slopes_ = bias.query_slopes.cols_from(head, 1), first_query_ = bias.first;
    } else {
      slope_ = bias.slopes[static_cast<size_t>(head)];
    }
    zero_ = gradient_columns - 1;
  }
  if (kind_ == DistanceBias::Kind::kTable) {
    table_ = bias.table.row(head);
    ahead_ = bias.ahead;
    zero_ = bias.table.cols - 1 - ahead_;
  }
}

// Distances i - j that a visible entry of the tile can have.
HeadBias::Distances HeadBias::visible(const ScoreTile& t) const {
  const int64_t least = t.query0 - (t.key0 + t.cols - 1);
  return {causal_ ? std::max<int64_t>(least, 0) : least, t.query0 + t.rows - 1 - t.key0};
}

// Whether these distances lie in a row of the table one after the other.
bool HeadBias::in_order(Distances d) const { return d.least >= -ahead_ && d.most <= zero_; }

int64_t HeadBias::column(int64_t distance) const {
  if (ahead_ == 0) distance = std::abs(distance);
  return zero_ - std::clamp(distance, -ahead_, zero_);
}

void HeadBias::set(ScoreTile& t, float* room) const {
  if (kind_ == DistanceBias::Kind::kNone) return;
  const Distances d = visible(t);
  if (query_slopes_.data) {
    assert(causal_);
    t.slopes = query_slopes_.row(t.query0 - first_query_), t.slope_stride = query_slopes_.stride;
    return;
  }
  if (kind_ == DistanceBias::Kind::kLinear && (d.least >= 0 || d.most <= 0)) {
    t.slope = d.least >= 0 ? slope_ : -slope_;
    return;
  }
  const int64_t count = t.rows + round_up(t.cols, kPanel) - 1;  // whole vectors are read
  if (table_ && in_order({d.most - count + 1, d.most})) {
    t.table = table_, t.table_zero = zero_;
    return;
  }
  t.table = room, t.table_zero = d.most;
  if (table_) return fill_from_table(d.most, count, room);
  for (int64_t c = 0; c < count; ++c) room[c] = -slope_ * static_cast<float>(std::abs(d.most - c));
}

// room[c] = bias at distance most - c: the far end's, the row's own, then what lies ahead.
void HeadBias::fill_from_table(int64_t most, int64_t count, float* room) const {
  const int64_t own = std::clamp<int64_t>(most - zero_, 0, count);
  const int64_t behind = std::clamp<int64_t>(most + ahead_ + 1, own, count);
  std::fill(room, room + own, table_[0]);
  std::copy_n(table_ + zero_ - (most - own), behind - own, room + own);
  for (int64_t c = behind; c < count; ++c) room[c] = table_[column(most - c)];
}

BiasGradient HeadBias::gradient(const ScoreTile& t, float* d_bias, float* room) const {
  if (!d_bias) return {};
  if (in_order(visible(t))) return {d_bias, zero_};
  std::fill_n(room, kRoom, 0.0f);
  return {room, visible(t).most};
}

void HeadBias::fold(const ScoreTile& t, const float* room, float* d_bias) const {
  const int64_t most = visible(t).most;
  for (int64_t c = 0; c < t.rows + t.cols; ++c) d_bias[column(most - c)] += room[c];
}

HeadScores::HeadScores(const AttentionOptions& options, const Head& h, int64_t gradient_columns)
    : bias_(options, h.head, gradient_columns), term_(options.term), head_(h) {
  if (options.dropout <= 0) return;
  dropout_key_ = mix64(options.dropout_key ^ static_cast<uint64_t>(options.dropout_heads + h.index));
  dropout_threshold_ = static_cast<uint32_t>(std::min(options.dropout * 4294967296.0, 4294967295.0));
  dropout_scale_ = 1.0f / (1.0f - options.dropout);
}

ScoreTile HeadScores::tile(const Place& place) const {
  ScoreTile t{.s = place.s,
              .rows = place.rows,
              .cols = place.cols,
              .query0 = place.query0,
              .key0 = place.key0,
              .visible = place.visible,
              .dropout_key = dropout_key_,
              .dropout_threshold = dropout_threshold_,
              .dropout_scale = dropout_scale_};
  bias_.set(t, place.room);
  return t;
}

ScoreTerm::Tile HeadScores::term_tile(const ScoreTile& t) const {
  return {head_.sequence, head_.head, t.query0, t.rows, t.key0, t.cols, kKeyTile};
}
void HeadScores::add_term(const ScoreTile& t) const {
  if (term_) term_->add(term_tile(t), t.s);
}
void HeadScores::add_term_gradient(const ScoreTile& t, const float* d_s) const {
  if (term_) term_->add_gradient(term_tile(t), d_s);
}

TileProducts::TileProducts(const ScoreTile& t, int64_t dim, bool causal, Arithmetic arithmetic)
    : rows_(t.rows),
      cols_(t.cols),
      dim_(dim),
      dp_(padded_dim(dim)),
      diagonal_(t.query0 - t.key0),
      whole_(!causal || diagonal_ >= t.cols - 1),
      arithmetic_(arithmetic) {}

int64_t TileProducts::scratch_floats(int64_t dim, bool bf16) {
  if (!bf16) return 0;
  const int64_t dp = padded_dim(dim);
  return std::max({tile_product_floats(kQueryTile, kKeyTile, dim), tile_product_floats(kQueryTile, dp, kKeyTile),
                   tile_product_floats(kKeyTile, dp, kQueryTile)});
}

void TileProducts::multiply(const TileProduct& p) const {
  arithmetic_.bf16 ? tile_product_bf16(p, bf16_path(), arithmetic_.scratch) : tile_product(p);
}

void TileProducts::scores(const float* x, const float* y_panels, float* s) const {
  multiply({.a = x,
            .a_stride = dp_,
            .a_transposed = false,
            .b = y_panels,
            .b_stride = kPanel,
            .b_panel = dim_ * kPanel,
            .c = s,
            .c_stride = kKeyTile,
            .m = rows_,
            .n = round_up(cols_, kPanel),
            .k = dim_,
            .accumulate = false,
            .causal = trimmed(Causal::kScores),
            .diagonal = diagonal_});
}

void TileProducts::add_rows(const float* s, const float* y, float* out) const {
  multiply({.a = s,
            .a_stride = kKeyTile,
            .a_transposed = false,
            .b = y,
            .b_stride = dp_,
            .b_panel = kPanel,
            .c = out,
            .c_stride = dp_,
            .m = rows_,
            .n = dp_,
            .k = cols_,
            .accumulate = true,
            .causal = trimmed(Causal::kRows),
            .diagonal = diagonal_});
}

void TileProducts::add_columns(const float* s, const float* x, float* out) const {
  multiply({.a = s,
            .a_stride = kKeyTile,
            .a_transposed = true,
            .b = x,
            .b_stride = dp_,
            .b_panel = kPanel,
            .c = out,
            .c_stride = dp_,
            .m = cols_,
            .n = dp_,
            .k = rows_,
            .accumulate = true,
            .causal = trimmed(Causal::kColumns),
            .diagonal = diagonal_});
}

}  // namespace longshot
