// The forward pass.
#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "kernels/attention_head.h"

namespace longshot {
namespace {

struct ForwardPieces {
  float *q, *s, *o, *row_max, *row_sum, *rescale, *q_norm, *slope, *tail, *room, *product;
  int64_t used;
  ForwardPieces(Cutter cut, int64_t head_dim, bool bf16) {
    const int64_t dp = padded_dim(head_dim);
    q = cut.take(kQueryTile * dp);        // [tile, D] scaled, rotated
    s = cut.take(kQueryTile * kKeyTile);  // [tile, key tile]
    o = cut.take(kQueryTile * dp);        // [tile, D]
    row_max = cut.take(kQueryTile);
    row_sum = cut.take(kQueryTile);
    rescale = cut.take(kQueryTile);
    q_norm = cut.take(kQueryTile);
    slope = cut.take(kQueryTile);  // of a linear bias
    tail = cut.take(kQueryTile);   // ln sum_{d >= 0} e^(-slope d)
    room = cut.take(HeadBias::kRoom);
    product = cut.take(TileProducts::scratch_floats(head_dim, bf16));
    used = cut.used();
  }
};

// The ring of one head, for reading.
struct StoredHead {
  const KeyRing& ring;
  int64_t tiles, dim;

  StoredHead(const KeyStore& store, const Head& h)
      : ring(store.rings[static_cast<size_t>(store.ring(h.sequence, h.key_head))]),
        tiles(ring.capacity / kKeyTile),
        dim(store.head_dim) {}
  const float* keys_of(int64_t tile) const { return ring.keys + tile % tiles * kKeyTile * dim; }
  const float* values_of(int64_t tile) const { return ring.values + tile % tiles * kKeyTile * padded_dim(dim); }
};

struct ForwardTask {
  const AttentionShape& shape;
  const AttentionOptions& options;
  const AttentionQueries& queries;
  const KeyStore& store;
  bool bf16;
};

// The stop rule. Visiting key tiles from near to far, everything further may be left out once for every row i that sees
// any of it
//
//   |q_i| max|k_unvisited| + G(d0) - lse_i  <=  ln eps,      G(d0) = ln sum_{d >= d0} e^(-m d) = -m d0 - ln(1 - e^-m)
//
// where d0 is the distance to the nearest unvisited key, q carries the scale of the scores, and lse_i is the running
// log-sum-exp: the probability left out is then at most eps, whatever the values. The first tile often holds an
// attention sink with an unusual key, so it is judged alone; the keys behind the query are judged alone as well. eps is
// divided among these parts. A score term adds the most it can to the left side. m is the row's own where slopes depend on
// the query.
class FarKeys {
 public:
  FarKeys(const ForwardTask& task, const Head& h, const QueryRows& rows, const ForwardPieces& w, const KeyRing& ring)
      : active_(task.options.epsilon > 0 && task.options.bias.kind == DistanceBias::Kind::kLinear), ring_(ring) {
    const AttentionOptions& options = task.options;
    const float most = options.term ? options.term->most() : 0;
    if (most == HUGE_VALF) active_ = false;
    for (int64_t r = 0; active_ && r < rows.rows; ++r) {
      w.slope[r] = slope_of(options.bias, h.head, rows.position + r);
      const bool known = r > 0 && w.slope[r] == w.slope[r - 1];
      w.tail[r] = known ? w.tail[r - 1] : most + static_cast<float>(log_tail(w.slope[r]));
      active_ = w.slope[r] > 0;
    }
    if (!active_) return;
    if (task.bf16) longer_ = kBf16Longer;
    log_eps_ = std::log(options.epsilon / (options.visible.causal ? 2.0f : 3.0f));
  }

  struct Rows {
    const float *q_norm, *row_max, *row_sum, *slope, *tail;
    const KeyRange* visible;
    int64_t count, query0;
  };

  // True if tiles [first, last) may be left out for all rows. REQUIRES: all their keys lie before all rows, or behind.
  bool negligible(const Rows& rows, int64_t first, int64_t last) const {
    if (!active_) return false;
    if (first >= last) return true;
    const bool before = first * kKeyTile < rows.query0;
    float kappa = ring_.norm_of(before ? last - 1 : first);
    if (!small(rows, first, last, kappa)) return false;  // for the nearest tile alone
    for (int64_t t = first; t < last; ++t) kappa = std::max(kappa, ring_.norm_of(t));
    return small(rows, first, last, kappa);
  }

 private:
  // The inequality, for keys of norm `kappa`.
  bool small(const Rows& rows, int64_t first, int64_t last, float kappa) const {
    const int64_t first_key = first * kKeyTile, last_key = last * kKeyTile - 1;
    const bool before = first_key < rows.query0;
    for (int64_t r = 0; r < rows.count; ++r) {
      if (rows.visible[r].first > last_key || rows.visible[r].last <= first_key) continue;
      const int64_t i = rows.query0 + r, d0 = before ? i - last_key : first_key - i;
      const float mass = longer_ * rows.q_norm[r] * kappa - rows.slope[r] * static_cast<float>(d0) + rows.tail[r];
      if (mass - rows.row_max[r] > log_eps_ + 20.0f) return false;  // the logarithm below is not needed to tell
      if (!(mass - rows.row_max[r] - std::log(rows.row_sum[r]) <= log_eps_)) return false;
    }
    return true;
  }

  bool active_;
  const KeyRing& ring_;
  float log_eps_ = 0;
  float longer_ = 1;  // what rounding can make of |q| |k|
};

// One query tile of one head. 1 scores  2 bias, softmax  3 mix values, from near to far.
class QueryTile {
 public:
  QueryTile(const ForwardTask& task, const Head& h, int64_t tile, float* scratch);
  VisitedTiles visit_tiles();
  void write() const;

 private:
  void visit(int64_t tile);

  const ForwardTask& task_;
  Head head_;
  QueryRows rows_;
  StoredHead stored_;
  HeadScores scores_;
  ForwardPieces w_;
  std::array<KeyRange, kQueryTile> visible_;
  KeyRange seen_;  // by any row
};

QueryTile::QueryTile(const ForwardTask& task, const Head& h, int64_t tile, float* scratch)
    : task_(task),
      head_(h),
      stored_(task.store, h),
      scores_(task.options, h),
      w_(Cutter(scratch), task.shape.head_dim, task.bf16) {
  const AttentionShape& shape = task.shape;
  const int64_t dim = shape.head_dim, dp = padded_dim(dim), first = tile * kQueryTile;
  rows_ = {h.sequence, first, std::min(kQueryTile, shape.queries - first),
           task.queries.position[static_cast<size_t>(h.sequence)] + first};
  visible_ranges(task.options.visible, rows_, stored_.ring.held, visible_.data());
  for (int64_t r = 0; r < rows_.rows; ++r) {
    const KeyRange range = visible_[static_cast<size_t>(r)];
    if (range.empty()) continue;
    seen_ = seen_.empty() ? range : KeyRange{std::min(seen_.first, range.first), std::max(seen_.last, range.last)};
  }
  const RotateCopy query{.x = task.queries.q.at(h.sequence, first, h.head),
                         .x_stride = task.queries.q.token,
                         .y = w_.q,
                         .y_stride = dp,
                         .rows = rows_.rows,
                         .dim = dim,
                         .padded = dp,
                         .scale = score_scale(shape, task.options)};
  rotate_copy(with_rotation(query, task.options.rotation, rows_.position, 1));
  std::fill_n(w_.o, rows_.rows * dp, 0.0f);
  std::fill_n(w_.row_max, rows_.rows, -HUGE_VALF);
  std::fill_n(w_.row_sum, rows_.rows, 0.0f);
}

void QueryTile::visit(int64_t tile) {
  const int64_t dim = task_.shape.head_dim, dp = padded_dim(dim), key0 = tile * kKeyTile;
  const ScoreTile t = scores_.tile({.query0 = rows_.position,
                                    .rows = rows_.rows,
                                    .key0 = key0,
                                    .cols = std::min(kKeyTile, stored_.ring.held.last - key0),
                                    .visible = visible_.data(),
                                    .s = w_.s,
                                    .room = w_.room});
  const TileProducts products(t, dim, task_.options.visible.causal, {task_.bf16, w_.product});
  products.scores(w_.q, stored_.keys_of(tile), w_.s);
  scores_.add_term(t);
  tile_softmax(t, w_.row_max, w_.row_sum, w_.rescale);
  scale_rows(w_.o, dp, w_.rescale, rows_.rows, dp);
  products.add_rows(w_.s, stored_.values_of(tile), w_.o);
}

VisitedTiles QueryTile::visit_tiles() {
  const int64_t dim = task_.shape.head_dim, dp = padded_dim(dim), query0 = rows_.position;
  if (task_.options.epsilon > 0 || !task_.queries.q_norm.empty()) {
    for (int64_t r = 0; r < rows_.rows; ++r) w_.q_norm[r] = std::sqrt(dot(w_.q + r * dp, w_.q + r * dp, dim));
  }
  if (seen_.empty()) return {};
  const FarKeys far(task_, head_, rows_, w_, stored_.ring);
  const FarKeys::Rows judged{w_.q_norm, w_.row_max, w_.row_sum, w_.slope, w_.tail, visible_.data(), rows_.rows, query0};

  const int64_t first = seen_.first / kKeyTile, last = tiles_of(seen_.last, kKeyTile);
  const int64_t near = std::clamp((query0 + rows_.rows - 1) / kKeyTile, first, last - 1);
  int64_t begin = near + 1, end = near + 1;
  while (begin > first) {
    visit(--begin);
    // Only rows whose own key has been visited have a meaningful sum: all of them once the diagonal is passed.
    if (begin > first && begin * kKeyTile <= query0 && far.negligible(judged, first + 1, begin)) break;
  }
  const bool sink = begin > first && !far.negligible(judged, first, first + 1);
  if (sink) visit(first);
  while (end < last && !far.negligible(judged, end, last)) visit(end++);
  return {static_cast<int32_t>(first), static_cast<int32_t>(last), static_cast<int32_t>(begin),
          static_cast<int32_t>(end), sink};
}

void QueryTile::write() const {
  const int64_t dim = task_.shape.head_dim, dp = padded_dim(dim);
  const int64_t at = head_.index * task_.shape.queries + rows_.first;
  float* lse = task_.queries.lse.data() + at;
  if (!task_.queries.q_norm.empty()) std::copy_n(w_.q_norm, rows_.rows, task_.queries.q_norm.data() + at);
  for (int64_t r = 0; r < rows_.rows; ++r) {
    w_.rescale[r] = w_.row_sum[r] == 0 ? 0.0f : 1.0f / w_.row_sum[r];
    lse[r] = w_.row_max[r] + std::log(w_.row_sum[r]);
  }
  scale_rows(w_.o, dp, w_.rescale, rows_.rows, dim);
  const NumberHeads& out = task_.queries.out;
  rotate_copy({.x = w_.o,
               .x_stride = dp,
               .y = out.at(head_.sequence, rows_.first, head_.head),
               .y_stride = out.token,
               .rows = rows_.rows,
               .dim = dim,
               .padded = dim});
}

}  // namespace

int64_t AttentionShape::query_tiles() const { return tiles_of(queries, kQueryTile); }

void attention_forward(Context& context, const AttentionShape& shape, const AttentionOptions& options,
                       const AttentionQueries& queries, const KeyStore& store) {
  const ZoneTimer timer(context, Zone::kAttentionForward);
  assert(store.head_dim == shape.head_dim && store.heads == shape.stored_heads());
  const bool bf16 = context.precision() == Precision::kBf16;
  const int64_t tiles = shape.query_tiles(), floats = ForwardPieces(Cutter(nullptr), shape.head_dim, bf16).used;
  const ForwardTask task{shape, options, queries, store, bf16};
  const std::span<float> scratch = context.scratch(context.threads() * floats);
  context.tasks(shape.sequences * shape.heads * tiles, [&](int64_t i, int thread) {
    const Head h = head_of(shape, i / tiles);
    const int64_t longest_first = tiles - 1 - i % tiles;
    QueryTile tile(task, h, longest_first, scratch.data() + thread * floats);
    queries.visited[static_cast<size_t>(h.index * tiles + longest_first)] = tile.visit_tiles();
    tile.write();
  });
}

void merge_attention(Context& context, const AttentionShape& shape, const AttentionResult& from,
                     const AttentionResult& into) {
  context.tasks(shape.sequences * shape.heads, [&](int64_t i) {
    const Head h = head_of(shape, i);
    for (int64_t t = 0; t < shape.queries; ++t) {
      const float add = from.lse[static_cast<size_t>(i * shape.queries + t)];
      float& lse = into.lse[static_cast<size_t>(i * shape.queries + t)];
      if (add == -HUGE_VALF) continue;
      const float high = std::max(lse, add), sum = std::exp(lse - high) + std::exp(add - high);
      const float mine = std::exp(lse - high) / sum, theirs = std::exp(add - high) / sum;
      const float* y = from.out.at(h.sequence, t, h.head);
      float* x = into.out.at(h.sequence, t, h.head);
      for (int64_t c = 0; c < shape.head_dim; ++c) x[c] = mine * x[c] + theirs * y[c];
      lse = high + std::log(sum);
    }
  });
}

TileCount count_tiles(std::span<const VisitedTiles> visited) {
  TileCount count;
  for (const VisitedTiles& v : visited) {
    count.seen += v.end - v.begin + (v.sink ? 1 : 0);
    count.all += v.last - v.first;
  }
  return count;
}

}  // namespace longshot
