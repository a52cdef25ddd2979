#include "kernels/attention.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/rng.h"
#include "base/threads.h"
#include "base/zones.h"
#include "kernels/attention_tile.h"

namespace longshot {
namespace {

int64_t padded_dim(int64_t head_dim) { return round_up(head_dim, kPanel); }
int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

// Cuts one thread's scratch memory into pieces.
class Cutter {
 public:
  explicit Cutter(float* at) : at_(at) {}
  float* take(int64_t count) {
    float* piece = at_;
    at_ += round_up(count, kPanel);
    used_ += round_up(count, kPanel);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  float* at_;
  int64_t used_ = 0;
};

struct ForwardPieces {
  float *q, *s, *o, *row_max, *row_sum, *rescale, *q_norm;
  ForwardPieces(Cutter cut, int64_t head_dim, int64_t* used = nullptr) {
    const int64_t dp = padded_dim(head_dim);
    q = cut.take(kQueryTile * dp);        // [tile, D]
    s = cut.take(kQueryTile * kKeyTile);  // [tile, key tile]
    o = cut.take(kQueryTile * dp);        // [tile, D]
    row_max = cut.take(kQueryTile);
    row_sum = cut.take(kQueryTile);
    rescale = cut.take(kQueryTile);
    q_norm = cut.take(kQueryTile);
    if (used) *used = cut.used();
  }
};

struct BackwardPieces {
  float *q, *k, *k_panels, *v_panels, *d_out, *d_q, *s, *dp, *d_k, *d_v, *delta;
  BackwardPieces(Cutter cut, int64_t tokens, int64_t head_dim, int64_t* used = nullptr) {
    const int64_t dp_cols = padded_dim(head_dim), rows = round_up(tokens, kKeyTile);
    q = cut.take(rows * dp_cols);          // [T, D] scaled, rotated
    k = cut.take(rows * dp_cols);          // [T, D] rotated
    k_panels = cut.take(rows * head_dim);  // the same, packed
    v_panels = cut.take(rows * head_dim);
    d_out = cut.take(rows * dp_cols);      // [T, D]
    d_q = cut.take(rows * dp_cols);        // [T, D]
    s = cut.take(kQueryTile * kKeyTile);
    dp = cut.take(kQueryTile * kKeyTile);
    d_k = cut.take(kKeyTile * dp_cols);
    d_v = cut.take(kKeyTile * dp_cols);
    delta = cut.take(rows);
    if (used) *used = cut.used();
  }
};

int64_t forward_floats(int64_t head_dim) {
  int64_t used = 0;
  ForwardPieces(Cutter(nullptr), head_dim, &used);
  return used;
}

int64_t backward_floats(int64_t tokens, int64_t head_dim) {
  int64_t used = 0;
  BackwardPieces(Cutter(nullptr), tokens, head_dim, &used);
  return used;
}

// A head of one sequence inside qkv or out: rows are tokens.
struct Head {
  int64_t sequence, head, index;  // index = sequence * H + head
};

Head head_of(const AttentionShape& shape, int64_t index) { return {index / shape.heads, index % shape.heads, index}; }

enum Part { kQuery = 0, kKey = 1, kValue = 2 };

const float* head_row(ConstMat m, const AttentionShape& shape, const Head& h, int64_t part, int64_t token) {
  return m.row(h.sequence * shape.queries + token) + part * shape.width() + h.head * shape.head_dim;
}
// The same in a matrix of wanted tokens only, without parts.
float* wanted_row(Mat m, const AttentionShape& shape, const Head& h, int64_t token) {
  return m.row(h.sequence * shape.wanted() + token - shape.skip) + h.head * shape.head_dim;
}
float* head_row(Mat m, const AttentionShape& shape, const Head& h, int64_t part, int64_t token) {
  return m.row(h.sequence * shape.queries + token) + part * shape.width() + h.head * shape.head_dim;
}

RotateCopy with_rotation(RotateCopy copy, const Rotation& rotation, int64_t position, float direction) {
  if (rotation.cos.cols == 0) return copy;
  copy.cos = rotation.cos.row(position);
  copy.sin = rotation.sin.row(position);
  copy.pairs = rotation.cos.cols;
  copy.interleaved = rotation.interleaved;
  copy.direction = direction;
  return copy;
}

float score_scale(const AttentionShape& shape) { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }

// Appends the new keys and values of one head to the store.
void append_keys(const AttentionShape& shape, const AttentionOptions& options, ConstMat qkv, const Head& h,
                 KeyStore& store) {
  const int64_t dim = shape.head_dim, dp = padded_dim(dim);
  float* keys = store.keys.data() + h.index * store.capacity * dim;
  float* values = store.values.data() + h.index * store.capacity * dp;
  float* norms = store.norms.data() + h.index * (store.capacity / kKeyTile);
  RotateCopy value{.x = head_row(qkv, shape, h, kValue, 0), .x_stride = qkv.stride, .y = values + shape.past * dp,
                   .y_stride = dp, .rows = shape.queries, .dim = dim, .padded = dp};
  rotate_copy(value);
  float row[kPanel * 512];  // up to kPanel rotated keys
  assert(dp <= 512);
  for (int64_t position = shape.past; position < shape.keys();) {
    const int64_t lane = position % kPanel, count = std::min(kPanel - lane, shape.keys() - position);
    const RotateCopy key{.x = head_row(qkv, shape, h, kKey, position - shape.past), .x_stride = qkv.stride, .y = row,
                         .y_stride = dp, .rows = count, .dim = dim, .padded = dp};
    rotate_copy(with_rotation(key, options.rotation, position, 1));
    float* panel = keys + position / kPanel * dim * kPanel;
    if (count == kPanel) {
      pack_panels(row, dp, kPanel, dim, panel);
    } else {
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t c = 0; c < dim; ++c) panel[c * kPanel + lane + r] = row[r * dp + c];
      }
    }
    if (position % kKeyTile == 0) norms[position / kKeyTile] = 0;
    float& norm = norms[position / kKeyTile];
    for (int64_t r = 0; r < count; ++r) norm = std::max(norm, std::sqrt(dot(row + r * dp, row + r * dp, dim)));
    position += count;
  }
}

ScoreTile score_tile(const AttentionShape& shape, const AttentionOptions& options, const Head& h, int64_t first_query,
                     int64_t rows, int64_t key0, float* s) {
  ScoreTile t{.s = s, .rows = rows, .cols = std::min(kKeyTile, shape.keys() - key0), .query0 = shape.past + first_query,
              .key0 = key0};
  const auto head = static_cast<size_t>(h.head);
  if (options.bias.kind == DistanceBias::Kind::kLinear) t.slope = options.bias.slopes[head];
  if (options.bias.kind == DistanceBias::Kind::kTable) t.table = options.bias.table.row(h.head);
  t.table_last = options.bias.kind == DistanceBias::Kind::kTable ? options.bias.table.cols - 1 : shape.keys() - 1;
  if (options.first_key) t.first_key = options.first_key + h.sequence * shape.queries + first_query;
  if (options.dropout > 0) {
    t.dropout_key = mix64(options.dropout_key ^ static_cast<uint64_t>(h.index));
    t.dropout_threshold = static_cast<uint32_t>(std::min(options.dropout * 4294967296.0, 4294967295.0));
    t.dropout_scale = 1.0f / (1.0f - options.dropout);
  }
  return t;
}

// The stop rule. Visiting key tiles from near to far, everything further may be left out once for every row i
//
//   |q_i| max|k_unvisited| + G(d0) - lse_i  <=  ln eps,      G(d0) = ln sum_{d >= d0} e^(-m d) = -m d0 - ln(1 - e^-m)
//
// where d0 is the distance to the nearest unvisited key, q carries the factor 1/sqrt(D), and lse_i is the running
// log-sum-exp: the probability left out is then at most eps, whatever the values. The first tile often holds an
// attention sink with an unusual key, so it is judged alone, against the same bound with eps split in two.
class FarKeys {
 public:
  FarKeys(const AttentionOptions& options, const Head& h, const float* norms)
      : active_(options.epsilon > 0 && options.bias.kind == DistanceBias::Kind::kLinear) {
    if (!active_) return;
    slope_ = options.bias.slopes[static_cast<size_t>(h.head)];
    active_ = slope_ > 0;
    if (!active_) return;
    log_eps_ = std::log(0.5f * options.epsilon);
    log_tail_ = -std::log1p(-std::exp(-slope_));
    norms_ = norms;
  }

  struct Rows {
    const float *q_norm, *row_max, *row_sum;
    int64_t count, query0;
  };

  // True if tiles [first, last] may be left out for all rows.
  bool negligible(const Rows& rows, int64_t first, int64_t last) const {
    if (!active_) return false;
    if (last < first) return true;
    float kappa = 0;
    for (int64_t t = first; t <= last; ++t) kappa = std::max(kappa, norms_[t]);
    const auto d0 = static_cast<float>(rows.query0 - ((last + 1) * kKeyTile - 1));  // of row 0, the nearest
    for (int64_t r = 0; r < rows.count; ++r) {
      const float mass = rows.q_norm[r] * kappa - slope_ * (d0 + static_cast<float>(r)) + log_tail_;
      if (mass - rows.row_max[r] > log_eps_ + 20.0f) return false;  // the logarithm below is not needed to tell
      if (!(mass - rows.row_max[r] - std::log(rows.row_sum[r]) <= log_eps_)) return false;
    }
    return true;
  }

 private:
  bool active_;
  float slope_ = 0, log_eps_ = 0, log_tail_ = 0;
  const float* norms_ = nullptr;
};

struct ForwardTask {
  const AttentionShape& shape;
  const AttentionOptions& options;
  ConstMat qkv;
  const KeyStore& store;
  Mat out;
  std::span<float> lse;
  VisitedTiles visited;
};

// One query tile of one head. 1 scores  2 bias, softmax  3 mix values, from near to far.
void forward_tile(const ForwardTask& task, const Head& h, int64_t query_tile, float* scratch) {
  const AttentionShape& shape = task.shape;
  const int64_t dim = shape.head_dim, dp = padded_dim(dim);
  const int64_t first = shape.skip + query_tile * kQueryTile, rows = std::min(kQueryTile, shape.queries - first);
  const ForwardPieces w(Cutter(scratch), dim);
  const float* keys = task.store.keys.data() + h.index * task.store.capacity * dim;
  const float* values = task.store.values.data() + h.index * task.store.capacity * dp;
  const float* norms = task.store.norms.data() + h.index * (task.store.capacity / kKeyTile);

  const RotateCopy query{.x = head_row(task.qkv, shape, h, kQuery, first), .x_stride = task.qkv.stride, .y = w.q,
                         .y_stride = dp, .rows = rows, .dim = dim, .padded = dp, .scale = score_scale(shape)};
  rotate_copy(with_rotation(query, task.options.rotation, shape.past + first, 1));
  std::fill_n(w.o, rows * dp, 0.0f);
  std::fill_n(w.row_max, rows, -HUGE_VALF);
  std::fill_n(w.row_sum, rows, 0.0f);

  const int64_t query0 = shape.past + first;
  const int64_t last_tile = (query0 + rows - 1) / kKeyTile;
  int64_t lowest = 0;  // tiles before every row's first visible key
  if (task.options.first_key) {
    const int32_t* fk = task.options.first_key + h.sequence * shape.queries + first;
    lowest = *std::min_element(fk, fk + rows) / kKeyTile;
  }
  const FarKeys far(task.options, h, norms);
  if (task.options.epsilon > 0) {
    for (int64_t r = 0; r < rows; ++r) w.q_norm[r] = std::sqrt(dot(w.q + r * dp, w.q + r * dp, dim));
  }
  const FarKeys::Rows judged{w.q_norm, w.row_max, w.row_sum, rows, query0};

  const auto visit = [&](int64_t tile) {
    const int64_t key0 = tile * kKeyTile, cols = std::min(kKeyTile, shape.keys() - key0);
    const int64_t diagonal = query0 - key0;
    const bool whole = diagonal >= cols - 1;
    tile_product({.a = w.q, .a_stride = dp, .a_transposed = false, .b = keys + key0 * dim, .b_stride = kPanel,
                  .b_panel = dim * kPanel, .c = w.s, .c_stride = kKeyTile, .m = rows, .n = round_up(cols, kPanel),
                  .k = dim, .accumulate = false, .causal = whole ? Causal::kFull : Causal::kScores,
                  .diagonal = diagonal});
    tile_softmax(score_tile(shape, task.options, h, first, rows, key0, w.s), w.row_max, w.row_sum, w.rescale);
    scale_rows(w.o, dp, w.rescale, rows, dp);
    tile_product({.a = w.s, .a_stride = kKeyTile, .a_transposed = false, .b = values + key0 * dp, .b_stride = dp,
                  .b_panel = kPanel, .c = w.o, .c_stride = dp, .m = rows, .n = dp, .k = cols, .accumulate = true,
                  .causal = whole ? Causal::kFull : Causal::kRows, .diagonal = diagonal});
  };
  int64_t tile = last_tile;
  for (; tile >= lowest; --tile) {
    visit(tile);
    // Only rows whose own key has been visited have a meaningful sum: all of them once the diagonal is passed.
    if (tile > lowest && tile * kKeyTile <= query0 && far.negligible(judged, std::max<int64_t>(lowest, 1), tile - 1)) break;
  }
  bool first_tile_too = false;
  if (tile > lowest && lowest == 0 && !far.negligible(judged, 0, 0)) {
    visit(0);
    first_tile_too = true;
  }
  const auto from = static_cast<int32_t>(std::max(tile, lowest));
  task.visited.from[static_cast<size_t>(h.index * shape.query_tiles() + query_tile)] = first_tile_too ? -from - 1 : from;

  for (int64_t r = 0; r < rows; ++r) {
    float* out = wanted_row(task.out, shape, h, first + r);
    const float inverse = 1.0f / w.row_sum[r];
    for (int64_t c = 0; c < dim; ++c) out[c] = w.o[r * dp + c] * inverse;
    task.lse[static_cast<size_t>(h.index * shape.wanted() + first - shape.skip + r)] = w.row_max[r] + std::log(w.row_sum[r]);
  }
}

struct BackwardTask {
  const AttentionShape& shape;
  const AttentionOptions& options;
  const AttentionForwardResult& forward;
  ConstMat d_out;
  Mat d_qkv;
};

// All of one head. 3 mix values  2 softmax, bias  1 scores.
void backward_head(const BackwardTask& task, const Head& h, float* scratch, float* d_bias) {
  const AttentionShape& shape = task.shape;
  const AttentionForwardResult& f = task.forward;
  const int64_t dim = shape.head_dim, dp = padded_dim(dim), tokens = shape.queries;
  const BackwardPieces w(Cutter(scratch), tokens, dim);
  const float* lse = f.lse.data() + h.index * tokens;

  const auto copy_in = [&](ConstMat from, int64_t part, float* to, float scale, bool rotated) {
    const RotateCopy copy{.x = head_row(from, shape, h, part, 0), .x_stride = from.stride, .y = to, .y_stride = dp,
                          .rows = tokens, .dim = dim, .padded = dp, .scale = scale};
    rotate_copy(rotated ? with_rotation(copy, task.options.rotation, 0, 1) : copy);
  };
  copy_in(f.qkv, kQuery, w.q, score_scale(shape), true);
  copy_in(f.qkv, kKey, w.k, 1, true);
  copy_in(task.d_out, 0, w.d_out, 1, false);
  pack_panels(w.k, dp, tokens, dim, w.k_panels);
  pack_panels(head_row(f.qkv, shape, h, kValue, 0), f.qkv.stride, tokens, dim, w.v_panels);
  // delta_i = sum_j p_ij dP_ij = dO_i . O_i
  for (int64_t i = 0; i < tokens; ++i) w.delta[i] = dot(w.d_out + i * dp, head_row(f.out, shape, h, 0, i), dim);
  std::fill_n(w.d_q, tokens * dp, 0.0f);

  const int64_t query_tiles = shape.query_tiles();
  const int32_t* visited = f.visited.from.data() + h.index * query_tiles;
  for (int64_t tile = 0; tile < tiles_of(tokens, kKeyTile); ++tile) {
    const int64_t key0 = tile * kKeyTile, cols = std::min(kKeyTile, tokens - key0), padded = round_up(cols, kPanel);
    std::fill_n(w.d_k, cols * dp, 0.0f);
    std::fill_n(w.d_v, cols * dp, 0.0f);
    for (int64_t qt = key0 / kQueryTile; qt < query_tiles; ++qt) {
      const int64_t first = qt * kQueryTile, rows = std::min(kQueryTile, tokens - first);
      const int64_t from = visited[qt] < 0 ? -visited[qt] - 1 : visited[qt];
      if (tile < from && !(tile == 0 && visited[qt] < 0)) continue;
      const int64_t diagonal = first - key0;
      const bool whole = diagonal >= cols - 1;
      const auto trimmed = [&](Causal causal) { return whole ? Causal::kFull : causal; };
      const ScoreTile t = score_tile(shape, task.options, h, first, rows, key0, w.s);
      const float* q = w.q + first * dp;
      const float* d_out = w.d_out + first * dp;
      // s = q k^T,  dP = dO v^T
      tile_product({.a = q, .a_stride = dp, .a_transposed = false, .b = w.k_panels + key0 * dim, .b_stride = kPanel,
                    .b_panel = dim * kPanel, .c = w.s, .c_stride = kKeyTile, .m = rows, .n = padded, .k = dim,
                    .accumulate = false, .causal = trimmed(Causal::kScores), .diagonal = diagonal});
      tile_product({.a = d_out, .a_stride = dp, .a_transposed = false, .b = w.v_panels + key0 * dim,
                    .b_stride = kPanel, .b_panel = dim * kPanel, .c = w.dp, .c_stride = kKeyTile, .m = rows,
                    .n = padded, .k = dim, .accumulate = false, .causal = trimmed(Causal::kScores),
                    .diagonal = diagonal});
      tile_probabilities(t, lse + first);
      tile_score_gradient(t, w.dp, w.delta + first, d_bias);
      // dv += P^T dO,  dq += dS k,  dk += dS^T q
      tile_product({.a = w.s, .a_stride = kKeyTile, .a_transposed = true, .b = d_out, .b_stride = dp,
                    .b_panel = kPanel, .c = w.d_v, .c_stride = dp, .m = cols, .n = dp, .k = rows, .accumulate = true,
                    .causal = trimmed(Causal::kColumns), .diagonal = diagonal});
      tile_product({.a = w.dp, .a_stride = kKeyTile, .a_transposed = false, .b = w.k + key0 * dp, .b_stride = dp,
                    .b_panel = kPanel, .c = w.d_q + first * dp, .c_stride = dp, .m = rows, .n = dp, .k = cols,
                    .accumulate = true, .causal = trimmed(Causal::kRows), .diagonal = diagonal});
      tile_product({.a = w.dp, .a_stride = kKeyTile, .a_transposed = true, .b = q, .b_stride = dp,
                    .b_panel = kPanel, .c = w.d_k, .c_stride = dp, .m = cols, .n = dp, .k = rows, .accumulate = true,
                    .causal = trimmed(Causal::kColumns), .diagonal = diagonal});
    }
    const RotateCopy key_out{.x = w.d_k, .x_stride = dp, .y = head_row(task.d_qkv, shape, h, kKey, key0),
                             .y_stride = task.d_qkv.stride, .rows = cols, .dim = dim, .padded = dim};
    rotate_copy(with_rotation(key_out, task.options.rotation, key0, -1));
    rotate_copy({.x = w.d_v, .x_stride = dp, .y = head_row(task.d_qkv, shape, h, kValue, key0),
                 .y_stride = task.d_qkv.stride, .rows = cols, .dim = dim, .padded = dim});
  }
  const RotateCopy query_out{.x = w.d_q, .x_stride = dp, .y = head_row(task.d_qkv, shape, h, kQuery, 0),
                             .y_stride = task.d_qkv.stride, .rows = tokens, .dim = dim, .padded = dim,
                             .scale = score_scale(shape)};
  rotate_copy(with_rotation(query_out, task.options.rotation, 0, -1));
}

int64_t d_bias_stride(const AttentionShape& shape) { return round_up(shape.keys() + kPanel, kPanel); }

}  // namespace

int64_t AttentionShape::query_tiles() const { return tiles_of(wanted(), kQueryTile); }

void KeyStore::layout(Layout& at, int64_t heads_in_all, int64_t tokens, int64_t dim) {
  capacity = round_up(tokens, kKeyTile);
  head_dim = dim;
  keys = at.array<float>(heads_in_all * capacity * dim);
  values = at.array<float>(heads_in_all * capacity * padded_dim(dim));
  norms = at.array<float>(heads_in_all * (capacity / kKeyTile));
}

void AttentionScratch::layout(Layout& at, const AttentionShape& shape, bool training, bool bias_gradient) {
  forward = at.array<float>(threads() * forward_floats(shape.head_dim));
  backward = at.array<float>(training ? threads() * backward_floats(shape.queries, shape.head_dim) : 0);
  d_bias = at.array<float>(training && bias_gradient ? shape.sequences * shape.heads * d_bias_stride(shape) : 0);
}

void attention_forward(const AttentionShape& shape, const AttentionOptions& options, ConstMat qkv, KeyStore& store,
                       AttentionScratch& scratch, Mat out, std::span<float> lse, VisitedTiles visited) {
  const ZoneTimer timer(Zone::kAttentionForward);
  assert(shape.keys() <= store.capacity && store.head_dim == shape.head_dim);
  const int64_t heads = shape.sequences * shape.heads, tiles = shape.query_tiles();
  parallel_tasks(heads, [&](int64_t i) { append_keys(shape, options, qkv, head_of(shape, i), store); });
  const ForwardTask task{shape, options, qkv, store, out, lse, visited};
  const int64_t floats = forward_floats(shape.head_dim);
  parallel_tasks(heads * tiles, [&](int64_t i) {
    const int64_t longest_first = tiles - 1 - i % tiles;
    forward_tile(task, head_of(shape, i / tiles), longest_first, scratch.forward.data() + thread_index() * floats);
  });
}

void attention_backward(const AttentionShape& shape, const AttentionOptions& options,
                        const AttentionForwardResult& forward, ConstMat d_out, AttentionScratch& scratch, Mat d_qkv,
                        Mat d_bias) {
  const ZoneTimer timer(Zone::kAttentionBackward);
  assert(shape.past == 0 && shape.skip == 0);
  const BackwardTask task{shape, options, forward, d_out, d_qkv};
  const int64_t floats = backward_floats(shape.queries, shape.head_dim), stride = d_bias_stride(shape);
  const bool wants_bias = options.bias.wants_gradient;
  parallel_tasks(shape.sequences * shape.heads, [&](int64_t i) {
    float* head_bias = nullptr;
    if (wants_bias) {
      head_bias = scratch.d_bias.data() + i * stride;
      std::fill_n(head_bias, stride, 0.0f);
    }
    backward_head(task, head_of(shape, i), scratch.backward.data() + thread_index() * floats, head_bias);
  });
  if (!wants_bias) return;
  // Summed in a fixed order: the same bits for any number of threads. Row i has its last entry at distance 0.
  const int64_t last = options.bias.kind == DistanceBias::Kind::kTable ? options.bias.table.cols - 1 : shape.keys() - 1;
  assert(last + 1 == d_bias.cols && last < stride);
  for (int64_t i = 0; i < shape.sequences * shape.heads; ++i) {
    const float* from = scratch.d_bias.data() + i * stride;
    float* to = d_bias.row(i % shape.heads);
    for (int64_t c = 0; c <= last; ++c) to[c] += from[c];
  }
}

TileCount count_tiles(const AttentionShape& shape, VisitedTiles visited) {
  TileCount count;
  const int64_t tiles = shape.query_tiles();
  for (int64_t i = 0; i < shape.sequences * shape.heads * tiles; ++i) {
    const int64_t first = shape.skip + i % tiles * kQueryTile, rows = std::min(kQueryTile, shape.queries - first);
    const int64_t causal = (shape.past + first + rows - 1) / kKeyTile + 1;
    const int32_t v = visited.from[static_cast<size_t>(i)];
    count.seen += causal - (v < 0 ? -v - 1 : v) + (v < 0);
    count.all += causal;
  }
  return count;
}

}  // namespace longshot
