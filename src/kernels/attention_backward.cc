#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/context.h"
#include "kernels/attention_head.h"

namespace longshot {
namespace {

struct BackwardPieces {
  float *q, *k, *k_panels, *v_panels, *d_out, *s, *dp, *d_k, *d_v, *delta;
  BackwardPieces(Cutter cut, int64_t tokens, int64_t head_dim, int64_t* used = nullptr) {
    const int64_t dp_cols = padded_dim(head_dim), rows = round_up(tokens, kKeyTile);
    q = cut.take(rows * dp_cols);          // [T, D] scaled, rotated
    k = cut.take(rows * dp_cols);          // [T, D] rotated
    k_panels = cut.take(rows * head_dim);  // the same, packed
    v_panels = cut.take(rows * head_dim);
    d_out = cut.take(rows * dp_cols);  // [T, D]
    s = cut.take(kQueryTile * kKeyTile);
    dp = cut.take(kQueryTile * kKeyTile);
    d_k = cut.take(kKeyTile * dp_cols);
    d_v = cut.take(kKeyTile * dp_cols);
    delta = cut.take(rows);
    if (used) *used = cut.used();
  }
};

struct BackwardTask {
  const AttentionShape& shape;
  const AttentionOptions& options;
  const AttentionForwardResult& forward;
  ConstMat d_out;
  Mat d_qkv;
  int64_t parts;  // of a head
};

// Key tiles part, part + parts, .. of one head: writes their d_k and d_v, fills d_q[T, D] with their share.
// 3 mix values  2 softmax, bias  1 scores.
void backward_part(const BackwardTask& task, const Head& h, int64_t part, float* scratch, float* d_q, float* d_bias) {
  const AttentionShape& shape = task.shape;
  const AttentionForwardResult& f = task.forward;
  const int64_t dim = shape.head_dim, dp = padded_dim(dim), tokens = shape.queries;
  const BackwardPieces w(Cutter(scratch), tokens, dim);
  const float* lse = f.lse.data() + h.index * tokens;

  const auto copy_in = [&](ConstMat from, int64_t part, float* to, float scale, bool rotated) {
    const RotateCopy copy{.x = head_row(from, shape, h, part, 0),
                          .x_stride = from.stride,
                          .y = to,
                          .y_stride = dp,
                          .rows = tokens,
                          .dim = dim,
                          .padded = dp,
                          .scale = scale};
    rotate_copy(rotated ? with_rotation(copy, task.options.rotation, 0, 1) : copy);
  };
  copy_in(f.qkv, kQuery, w.q, score_scale(shape), true);
  copy_in(f.qkv, kKey, w.k, 1, true);
  copy_in(task.d_out, 0, w.d_out, 1, false);
  pack_panels(w.k, dp, tokens, dim, w.k_panels);
  pack_panels(head_row(f.qkv, shape, h, kValue, 0), f.qkv.stride, tokens, dim, w.v_panels);
  // delta_i = sum_j p_ij dP_ij = dO_i . O_i
  for (int64_t i = 0; i < tokens; ++i) w.delta[i] = dot(w.d_out + i * dp, head_row(f.out, shape, h, 0, i), dim);
  std::fill_n(d_q, tokens * dp, 0.0f);

  const int64_t query_tiles = shape.query_tiles();
  const int32_t* visited = f.visited.from.data() + h.index * query_tiles;
  for (int64_t tile = part; tile < tiles_of(tokens, kKeyTile); tile += task.parts) {
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
      // [rows, cols] = x y^T
      const auto scores = [&](const float* x, const float* y_panels, float* out) {
        tile_product({.a = x,
                      .a_stride = dp,
                      .a_transposed = false,
                      .b = y_panels + key0 * dim,
                      .b_stride = kPanel,
                      .b_panel = dim * kPanel,
                      .c = out,
                      .c_stride = kKeyTile,
                      .m = rows,
                      .n = padded,
                      .k = dim,
                      .accumulate = false,
                      .causal = trimmed(Causal::kScores),
                      .diagonal = diagonal});
      };
      // [cols, D] += tile^T x
      const auto add_to_keys = [&](const float* tile_values, const float* x, float* out) {
        tile_product({.a = tile_values,
                      .a_stride = kKeyTile,
                      .a_transposed = true,
                      .b = x,
                      .b_stride = dp,
                      .b_panel = kPanel,
                      .c = out,
                      .c_stride = dp,
                      .m = cols,
                      .n = dp,
                      .k = rows,
                      .accumulate = true,
                      .causal = trimmed(Causal::kColumns),
                      .diagonal = diagonal});
      };
      scores(q, w.k_panels, w.s);       // s = q k^T
      scores(d_out, w.v_panels, w.dp);  // dP = dO v^T
      tile_probabilities(t, lse + first);
      tile_score_gradient(t, w.dp, w.delta + first, d_bias);
      add_to_keys(w.s, d_out, w.d_v);  // dv += P^T dO
      add_to_keys(w.dp, q, w.d_k);     // dk += dS^T q
      tile_product({.a = w.dp,         // dq += dS k
                    .a_stride = kKeyTile,
                    .a_transposed = false,
                    .b = w.k + key0 * dp,
                    .b_stride = dp,
                    .b_panel = kPanel,
                    .c = d_q + first * dp,
                    .c_stride = dp,
                    .m = rows,
                    .n = dp,
                    .k = cols,
                    .accumulate = true,
                    .causal = trimmed(Causal::kRows),
                    .diagonal = diagonal});
    }
    const RotateCopy key_out{.x = w.d_k,
                             .x_stride = dp,
                             .y = head_row(task.d_qkv, shape, h, kKey, key0),
                             .y_stride = task.d_qkv.stride,
                             .rows = cols,
                             .dim = dim,
                             .padded = dim};
    rotate_copy(with_rotation(key_out, task.options.rotation, key0, -1));
    rotate_copy({.x = w.d_v,
                 .x_stride = dp,
                 .y = head_row(task.d_qkv, shape, h, kValue, key0),
                 .y_stride = task.d_qkv.stride,
                 .rows = cols,
                 .dim = dim,
                 .padded = dim});
  }
}

// d_q of a head is finished: turned back, scaled and written.
void write_queries(const BackwardTask& task, const Head& h, const float* d_q) {
  const AttentionShape& shape = task.shape;
  const RotateCopy query_out{.x = d_q,
                             .x_stride = padded_dim(shape.head_dim),
                             .y = head_row(task.d_qkv, shape, h, kQuery, 0),
                             .y_stride = task.d_qkv.stride,
                             .rows = shape.queries,
                             .dim = shape.head_dim,
                             .padded = shape.head_dim,
                             .scale = score_scale(shape)};
  rotate_copy(with_rotation(query_out, task.options.rotation, 0, -1));
}

void add_to(float* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

int64_t backward_floats(int64_t tokens, int64_t head_dim) {
  int64_t used = 0;
  BackwardPieces(Cutter(nullptr), tokens, head_dim, &used);
  return used;
}

// A head is one task, unless there are too few heads for the threads.
int64_t backward_parts(const AttentionShape& shape, int threads) {
  const int64_t heads = shape.sequences * shape.heads, wanted = 2 * threads;
  return heads >= wanted ? 1 : std::min(tiles_of(wanted, heads), tiles_of(shape.queries, kKeyTile));
}

void attention_backward(Context& context, const AttentionShape& shape, const AttentionOptions& options,
                        const AttentionForwardResult& forward, ConstMat d_out, AttentionScratch& scratch, Mat d_qkv,
                        Mat d_bias) {
  const ZoneTimer timer(context, Zone::kAttentionBackward);
  assert(shape.past == 0 && shape.skip == 0);
  const int64_t heads = shape.sequences * shape.heads, parts = backward_parts(shape, context.threads());
  const BackwardTask task{shape, options, forward, d_out, d_qkv, parts};
  const int64_t floats = backward_floats(shape.queries, shape.head_dim), stride = d_bias_stride(shape);
  const int64_t d_q_floats = query_gradient_floats(shape);
  const bool wants_bias = options.bias.wants_gradient;
  context.tasks(heads * parts, [&](int64_t i, int thread) {
    float* d_q = scratch.d_q.data() + (parts == 1 ? thread : i) * d_q_floats;
    float* part_bias = nullptr;
    if (wants_bias) {
      part_bias = scratch.d_bias.data() + i * stride;
      std::fill_n(part_bias, stride, 0.0f);
    }
    const Head h = head_of(shape, i / parts);
    backward_part(task, h, i % parts, scratch.backward.data() + thread * floats, d_q, part_bias);
    if (parts == 1) write_queries(task, h, d_q);
  });
  // Everything is summed in a fixed order: the same bits in every run.
  if (parts > 1) {
    context.tasks(heads, [&](int64_t i) {
      float* sum = scratch.d_q.data() + i * parts * d_q_floats;
      for (int64_t part = 1; part < parts; ++part) add_to(sum, sum + part * d_q_floats, d_q_floats);
      write_queries(task, head_of(shape, i), sum);
    });
  }
  if (!wants_bias) return;
  // Row i has its last entry at distance 0.
  const int64_t last = options.bias.kind == DistanceBias::Kind::kTable ? options.bias.table.cols - 1 : shape.keys() - 1;
  assert(last + 1 == d_bias.cols && last < stride);
  for (int64_t i = 0; i < heads * parts; ++i) {
    add_to(d_bias.row(i / parts % shape.heads), scratch.d_bias.data() + i * stride, last + 1);
  }
}

}  // namespace longshot
