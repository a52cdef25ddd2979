#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "kernels/attention_head.h"

namespace longshot {
namespace {

// One head of keys and the G heads of queries that look at it, whose rows are stacked: head g, query t in row g T + t.
struct BackwardPieces {
  float *q, *k, *k_panels, *v_panels, *d_out, *delta, *s, *dp, *d_k, *d_v, *room, *product;
  int64_t used;
  BackwardPieces(Cutter cut, const AttentionShape& shape, int64_t keys, bool bf16) {
    const int64_t dim = shape.head_dim, width = padded_dim(dim), rows = shape.group() * shape.queries;
    q = cut.take(rows * width);                         // [G T, D] scaled, rotated
    k = cut.take(keys * width);                         // [S, D] rotated
    k_panels = cut.take(round_up(keys, kPanel) * dim);  // the same, packed
    v_panels = cut.take(round_up(keys, kPanel) * dim);
    d_out = cut.take(rows * width);  // [G T, D]
    delta = cut.take(rows);
    s = cut.take(kQueryTile * kKeyTile);
    dp = cut.take(kQueryTile * kKeyTile);
    d_k = cut.take(kKeyTile * width);
    d_v = cut.take(kKeyTile * width);
    room = cut.take(HeadBias::kRoom);
    product = cut.take(TileProducts::scratch_floats(dim, bf16));
    used = cut.used();
  }
};

struct BackwardTask {
  const AttentionShape& shape;
  const AttentionOptions& options;
  const AttentionForwardResult& forward;
  const AttentionGradients& gradients;
  bool bf16;
  int64_t d_bias_stride;  // floats from one head's gradient of the bias to the next
};

class KeyHead {
 public:
  struct Memory {
    float* scratch;
    float* d_q;     // [G T, D], a sum
    float* d_bias;  // [G, columns], a sum; null: not wanted
  };
  KeyHead(const BackwardTask& task, int64_t index, const Memory& memory);

  void load();
  // d_k and d_v of one tile of keys are written, its share is added to d_q and d_bias.
  void key_tile(int64_t tile);
  // d_q is finished: turned back, scaled and written.
  void write_queries() const;

 private:
  // A query tile: head g of the group, queries from `first` on.
  struct Block {
    int64_t g, first, rows;
  };
  void pair(const Block& block, int64_t key0, int64_t cols);
  int64_t head(int64_t g) const { return key_head_ * task_.shape.group() + g; }
  int64_t row(int64_t g, int64_t t) const { return g * task_.shape.queries + t; }

  const BackwardTask& task_;
  int64_t sequence_, key_head_;
  int64_t first_index_;  // of the group's heads, counted over all sequences
  int64_t position_;     // of the first query
  int64_t dim_, dp_;
  Memory memory_;
  BackwardPieces w_;
};

KeyHead::KeyHead(const BackwardTask& task, int64_t index, const Memory& memory)
    : task_(task),
      sequence_(index / task.shape.stored_heads()),
      key_head_(index % task.shape.stored_heads()),
      first_index_(index * task.shape.group()),
      position_(task.forward.position[static_cast<size_t>(sequence_)]),
      dim_(task.shape.head_dim),
      dp_(padded_dim(dim_)),
      memory_(memory),
      w_(Cutter(memory.scratch), task.shape, task.forward.keys, task.bf16) {}

void KeyHead::load() {
  const AttentionForwardResult& f = task_.forward;
  const int64_t T = task_.shape.queries, S = f.keys;
  const Rotation& rotation = task_.options.rotation;
  for (int64_t g = 0; g < task_.shape.group(); ++g) {
    const RotateCopy q{.x = f.q.at(sequence_, 0, head(g)),
                       .x_stride = f.q.token,
                       .y = w_.q + row(g, 0) * dp_,
                       .y_stride = dp_,
                       .rows = T,
                       .dim = dim_,
                       .padded = dp_,
                       .scale = score_scale(task_.shape, task_.options)};
    rotate_copy(with_rotation(q, rotation, position_, 1));
    const ConstHeads& d_out = task_.gradients.d_out;
    rotate_copy({.x = d_out.at(sequence_, 0, head(g)),
                 .x_stride = d_out.token,
                 .y = w_.d_out + row(g, 0) * dp_,
                 .y_stride = dp_,
                 .rows = T,
                 .dim = dim_,
                 .padded = dp_});
    // delta_i = sum_j p_ij dP_ij = dO_i . O_i
    for (int64_t t = 0; t < T; ++t) {
      w_.delta[row(g, t)] = dot(w_.d_out + row(g, t) * dp_, f.out.at(sequence_, t, head(g)), dim_);
    }
  }
  const auto keys = [&](const ConstNumberHeads& x) {
    return RotateCopy{.x = x.at(sequence_, 0, key_head_),
                      .x_stride = x.token,
                      .y = w_.k,
                      .y_stride = dp_,
                      .rows = S,
                      .dim = dim_,
                      .padded = dp_};
  };
  rotate_copy(keys(f.v));
  pack_panels(w_.k, dp_, S, dim_, w_.v_panels);
  rotate_copy(with_rotation(keys(f.k), rotation, 0, 1));
  pack_panels(w_.k, dp_, S, dim_, w_.k_panels);
  std::fill_n(memory_.d_q, row(task_.shape.group(), 0) * dp_, 0.0f);
  if (memory_.d_bias) std::fill_n(memory_.d_bias, task_.shape.group() * task_.d_bias_stride, 0.0f);
}

// 3 mix values  2 softmax, bias  1 scores.
void KeyHead::pair(const Block& block, int64_t key0, int64_t cols) {
  const AttentionOptions& options = task_.options;
  const int64_t at = row(block.g, block.first);
  const QueryRows rows{sequence_, block.first, block.rows, position_ + block.first};
  std::array<KeyRange, kQueryTile> visible;
  visible_ranges(options.visible, rows, {0, task_.forward.keys}, visible.data());
  const Head h{sequence_, head(block.g), key_head_, first_index_ + block.g};
  const HeadScores scores(options, h, task_.gradients.d_bias.cols);
  const ScoreTile t = scores.tile({.query0 = rows.position,
                                   .rows = block.rows,
                                   .key0 = key0,
                                   .cols = cols,
                                   .visible = visible.data(),
                                   .s = w_.s,
                                   .room = w_.room});
  const TileProducts products(t, dim_, options.visible.causal, {task_.bf16, w_.product});
  const float *q = w_.q + at * dp_, *d_out = w_.d_out + at * dp_;
  products.scores(q, w_.k_panels + key0 * dim_, w_.s);  // s = q k^T
  scores.add_term(t);
  products.scores(d_out, w_.v_panels + key0 * dim_, w_.dp);  // dP = dO v^T
  tile_probabilities(t, task_.forward.lse.data() + first_index_ * task_.shape.queries + at);
  float* d_bias = memory_.d_bias ? memory_.d_bias + block.g * task_.d_bias_stride : nullptr;
  const BiasGradient d_tile = scores.bias().gradient(t, d_bias, w_.room);
  tile_score_gradient(t, w_.dp, w_.delta + at, d_tile);
  if (d_tile.row == w_.room) scores.bias().fold(t, w_.room, d_bias);
  scores.add_term_gradient(t, w_.dp);
  products.add_columns(w_.s, d_out, w_.d_v);                            // dv += P^T dO
  products.add_columns(w_.dp, q, w_.d_k);                               // dk += dS^T q
  products.add_rows(w_.dp, w_.k + key0 * dp_, memory_.d_q + at * dp_);  // dq += dS k
}

void KeyHead::key_tile(int64_t tile) {
  const int64_t T = task_.shape.queries, query_tiles = task_.shape.query_tiles();
  const int64_t key0 = tile * kKeyTile, cols = std::min(kKeyTile, task_.forward.keys - key0);
  const VisitedTiles* visited = task_.forward.visited.data() + first_index_ * query_tiles;
  std::fill_n(w_.d_k, cols * dp_, 0.0f);
  std::fill_n(w_.d_v, cols * dp_, 0.0f);
  for (int64_t i = 0; i < task_.shape.group() * query_tiles; ++i) {
    if (!visited[i].contains(tile)) continue;
    const int64_t first = i % query_tiles * kQueryTile;
    pair({i / query_tiles, first, std::min(kQueryTile, T - first)}, key0, cols);
  }
  const AttentionGradients& to = task_.gradients;
  RotateCopy out{.x = w_.d_k,
                 .x_stride = dp_,
                 .y = to.d_k.at(sequence_, key0, key_head_),
                 .y_stride = to.d_k.token,
                 .rows = cols,
                 .dim = dim_,
                 .padded = dim_};
  rotate_copy(with_rotation(out, task_.options.rotation, key0, -1));
  out.x = w_.d_v, out.y = to.d_v.at(sequence_, key0, key_head_), out.y_stride = to.d_v.token;
  rotate_copy(out);
}

void KeyHead::write_queries() const {
  const NumberHeads& to = task_.gradients.d_q;
  for (int64_t g = 0; g < task_.shape.group(); ++g) {
    const RotateCopy out{.x = memory_.d_q + row(g, 0) * dp_,
                         .x_stride = dp_,
                         .y = to.at(sequence_, 0, head(g)),
                         .y_stride = to.token,
                         .rows = task_.shape.queries,
                         .dim = dim_,
                         .padded = dim_,
                         .scale = score_scale(task_.shape, task_.options)};
    rotate_copy(with_rotation(out, task_.options.rotation, position_, -1));
  }
}

void add_to(float* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

// A head of keys is one task, unless there are too few heads for the threads.
int64_t parts_of_a_head(const AttentionShape& shape, int64_t keys, int threads) {
  const int64_t sequences = shape.together > 0 ? std::min(shape.together, shape.sequences) : shape.sequences;
  const int64_t heads = sequences * shape.stored_heads(), wanted = 2 * int64_t{threads};
  return heads >= wanted ? 1 : std::clamp<int64_t>(tiles_of(keys, kKeyTile), 1, tiles_of(wanted, heads));
}

// The call's memory: per thread, and what is summed over the parts of a head.
struct BackwardMemory {
  int64_t thread_floats, d_q_floats, d_bias_floats, parts;
  float *threads, *d_q, *d_bias;

  BackwardMemory(Context& context, const BackwardTask& task) {
    const AttentionShape& shape = task.shape;
    parts = parts_of_a_head(shape, task.forward.keys, context.threads());
    const int64_t tasks = shape.sequences * shape.stored_heads() * parts;
    const int64_t count = context.threads();
    thread_floats = BackwardPieces(Cutter(nullptr), shape, task.forward.keys, task.bf16).used;
    d_q_floats = round_up(shape.group() * shape.queries * padded_dim(shape.head_dim), kPanel);
    d_bias_floats = shape.group() * task.d_bias_stride;
    const int64_t d_q_count = parts == 1 ? count : tasks;
    threads = context.scratch(count * thread_floats + d_q_count * d_q_floats + tasks * d_bias_floats).data();
    d_q = threads + count * thread_floats;
    d_bias = task.options.bias.wants_gradient ? d_q + d_q_count * d_q_floats : nullptr;
  }
  // Of task i on a thread. A head in one part needs its d_q no longer than the task.
  KeyHead::Memory of(int64_t i, int thread) const {
    return {threads + thread * thread_floats, d_q + (parts == 1 ? thread : i) * d_q_floats,
            d_bias ? d_bias + i * d_bias_floats : nullptr};
  }
};

}  // namespace

void attention_backward(Context& context, const AttentionShape& shape, const AttentionOptions& options,
                        const AttentionForwardResult& forward, const AttentionGradients& gradients) {
  const ZoneTimer timer(context, Zone::kAttentionBackward);
  const bool wants_bias = options.bias.wants_gradient;
  assert(!wants_bias || options.bias.kind != DistanceBias::Kind::kTable ||
         options.bias.table.cols == gradients.d_bias.cols);
  const bool bf16 = context.precision() == Precision::kBf16;
  const BackwardTask task{shape,     options, forward,
                          gradients, bf16,    wants_bias ? round_up(gradients.d_bias.cols, kPanel) : 0};
  const BackwardMemory memory(context, task);
  const int64_t heads = shape.sequences * shape.stored_heads(), parts = memory.parts;
  context.tasks(heads * parts, [&](int64_t i, int thread) {
    KeyHead head(task, i / parts, memory.of(i, thread));
    head.load();
    for (int64_t tile = i % parts; tile < tiles_of(forward.keys, kKeyTile); tile += parts) head.key_tile(tile);
    if (parts == 1) head.write_queries();
  });
  // Everything is summed in a fixed order: the same bits in every run.
  if (parts > 1) {
    context.tasks(heads, [&](int64_t i, int thread) {
      const KeyHead::Memory sum = memory.of(i * parts, thread);
      for (int64_t part = 1; part < parts; ++part) {
        add_to(sum.d_q, sum.d_q + part * memory.d_q_floats, memory.d_q_floats);
      }
      KeyHead(task, i, sum).write_queries();
    });
  }
  if (!wants_bias) return;
  const RowGroups& groups = gradients.groups;
  const int64_t per_sequence = shape.stored_heads() * parts * shape.group();
  int64_t row = 0;  // of the group's first head
  size_t group = 0;
  for (int64_t i = 0; i < shape.sequences * per_sequence; ++i) {
    while (group + 1 < groups.groups.size() &&
           i / per_sequence * shape.queries >= groups.groups[group].end - groups.begin) {
      ++group, row += shape.heads;
    }
    const int64_t key_head = i / (parts * shape.group()) % shape.stored_heads();
    add_to(gradients.d_bias.row(row + key_head * shape.group() + i % shape.group()),
           memory.d_bias + i * task.d_bias_stride, gradients.d_bias.cols);
  }
}

}  // namespace longshot
