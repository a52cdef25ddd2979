// The forward pass, and the memory both passes need.
#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/context.h"
#include "kernels/attention_head.h"

namespace longshot {
namespace {

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

// The same in a matrix of wanted tokens only, without parts.
float* wanted_row(Mat m, const AttentionShape& shape, const Head& h, int64_t token) {
  return m.row(h.sequence * shape.wanted() + token - shape.skip) + h.head * shape.head_dim;
}
// Appends the new keys and values of one head to the store.
void append_keys(const AttentionShape& shape, const AttentionOptions& options, ConstMat qkv, const Head& h,
                 KeyStore& store) {
  const int64_t dim = shape.head_dim, dp = padded_dim(dim);
  float* keys = store.keys.data() + h.index * store.capacity * dim;
  float* values = store.values.data() + h.index * store.capacity * dp;
  float* norms = store.norms.data() + h.index * (store.capacity / kKeyTile);
  RotateCopy value{.x = head_row(qkv, shape, h, kValue, 0),
                   .x_stride = qkv.stride,
                   .y = values + shape.past * dp,
                   .y_stride = dp,
                   .rows = shape.queries,
                   .dim = dim,
                   .padded = dp};
  rotate_copy(value);
  float row[kPanel * 512];  // up to kPanel rotated keys
  assert(dp <= 512);
  for (int64_t position = shape.past; position < shape.keys();) {
    const int64_t lane = position % kPanel, count = std::min(kPanel - lane, shape.keys() - position);
    const RotateCopy key{.x = head_row(qkv, shape, h, kKey, position - shape.past),
                         .x_stride = qkv.stride,
                         .y = row,
                         .y_stride = dp,
                         .rows = count,
                         .dim = dim,
                         .padded = dp};
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

  const RotateCopy query{.x = head_row(task.qkv, shape, h, kQuery, first),
                         .x_stride = task.qkv.stride,
                         .y = w.q,
                         .y_stride = dp,
                         .rows = rows,
                         .dim = dim,
                         .padded = dp,
                         .scale = score_scale(shape)};
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
    tile_product({.a = w.q,
                  .a_stride = dp,
                  .a_transposed = false,
                  .b = keys + key0 * dim,
                  .b_stride = kPanel,
                  .b_panel = dim * kPanel,
                  .c = w.s,
                  .c_stride = kKeyTile,
                  .m = rows,
                  .n = round_up(cols, kPanel),
                  .k = dim,
                  .accumulate = false,
                  .causal = whole ? Causal::kFull : Causal::kScores,
                  .diagonal = diagonal});
    tile_softmax(score_tile(shape, task.options, h, first, rows, key0, w.s), w.row_max, w.row_sum, w.rescale);
    scale_rows(w.o, dp, w.rescale, rows, dp);
    tile_product({.a = w.s,
                  .a_stride = kKeyTile,
                  .a_transposed = false,
                  .b = values + key0 * dp,
                  .b_stride = dp,
                  .b_panel = kPanel,
                  .c = w.o,
                  .c_stride = dp,
                  .m = rows,
                  .n = dp,
                  .k = cols,
                  .accumulate = true,
                  .causal = whole ? Causal::kFull : Causal::kRows,
                  .diagonal = diagonal});
  };
  int64_t tile = last_tile;
  for (; tile >= lowest; --tile) {
    visit(tile);
    // Only rows whose own key has been visited have a meaningful sum: all of them once the diagonal is passed.
    if (tile > lowest && tile * kKeyTile <= query0 && far.negligible(judged, std::max<int64_t>(lowest, 1), tile - 1))
      break;
  }
  bool first_tile_too = false;
  if (tile > lowest && lowest == 0 && !far.negligible(judged, 0, 0)) {
    visit(0);
    first_tile_too = true;
  }
  const auto from = static_cast<int32_t>(std::max(tile, lowest));
  task.visited.from[static_cast<size_t>(h.index * shape.query_tiles() + query_tile)] =
      first_tile_too ? -from - 1 : from;

  for (int64_t r = 0; r < rows; ++r) {
    float* out = wanted_row(task.out, shape, h, first + r);
    const float inverse = 1.0f / w.row_sum[r];
    for (int64_t c = 0; c < dim; ++c) out[c] = w.o[r * dp + c] * inverse;
    task.lse[static_cast<size_t>(h.index * shape.wanted() + first - shape.skip + r)] =
        w.row_max[r] + std::log(w.row_sum[r]);
  }
}

}  // namespace

int64_t forward_floats(int64_t head_dim) {
  int64_t used = 0;
  ForwardPieces(Cutter(nullptr), head_dim, &used);
  return used;
}

int64_t AttentionShape::query_tiles() const { return tiles_of(wanted(), kQueryTile); }

void KeyStore::layout(Layout& at, int64_t heads_in_all, int64_t tokens, int64_t dim) {
  capacity = round_up(tokens, kKeyTile);
  head_dim = dim;
  keys = at.array<float>(heads_in_all * capacity * dim);
  values = at.array<float>(heads_in_all * capacity * padded_dim(dim));
  norms = at.array<float>(heads_in_all * (capacity / kKeyTile));
}

void AttentionScratch::layout(Layout& at, const Context& context, const AttentionShape& shape, bool training,
                              bool bias_gradient) {
  const int threads = context.threads();
  forward = at.array<float>(threads * forward_floats(shape.head_dim));
  if (!training) return;
  const int64_t parts = backward_parts(shape, threads), tasks = shape.sequences * shape.heads * parts;
  backward = at.array<float>(threads * backward_floats(shape.queries, shape.head_dim));
  d_q = at.array<float>((parts == 1 ? threads : tasks) * query_gradient_floats(shape));
  d_bias = at.array<float>(bias_gradient ? tasks * d_bias_stride(shape) : 0);
}

void attention_forward(Context& context, const AttentionShape& shape, const AttentionOptions& options, ConstMat qkv,
                       KeyStore& store, AttentionScratch& scratch, Mat out, std::span<float> lse,
                       VisitedTiles visited) {
  const ZoneTimer timer(context, Zone::kAttentionForward);
  assert(shape.keys() <= store.capacity && store.head_dim == shape.head_dim);
  const int64_t heads = shape.sequences * shape.heads, tiles = shape.query_tiles();
  context.tasks(heads, [&](int64_t i) { append_keys(shape, options, qkv, head_of(shape, i), store); });
  const ForwardTask task{shape, options, qkv, store, out, lse, visited};
  const int64_t floats = forward_floats(shape.head_dim);
  context.tasks(heads * tiles, [&](int64_t i, int thread) {
    const int64_t longest_first = tiles - 1 - i % tiles;
    forward_tile(task, head_of(shape, i / tiles), longest_first, scratch.forward.data() + thread * floats);
  });
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
