// Attention, forward and backward, without ever holding a matrix of queries x keys. One path for training, evaluation
// and decoding. `attention_call.h` wraps it for memory of one's own.
//
//   s_ij = scale q_i . k_j + b_h(i - j) + term(i, j),   first_i <= j < last_i
//   p_i = softmax(s_i);    o_i = sum_j drop(p_ij) v_j;    lse_i = ln sum_j e^s_ij
//
// i and j are positions: absolute, whatever a cache has forgotten. A query that sees no key has o_i = 0, lse_i = -inf
// and no gradient.
//
// Queries, keys, values, the result and its gradients may be bf16; what is computed of them are floats.
//
// Letters: B sequences, T queries and S keys of each, H heads, D head dimension.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "base/context.h"
#include "base/groups.h"
#include "base/view.h"
#include "kernels/attention_keys.h"

namespace longshot {

// What distance d = i - j adds to the scores of one layer: nothing, -slope_h |d|, or table_h[d].
struct DistanceBias {
  enum class Kind { kNone, kLinear, kTable };
  Kind kind = Kind::kNone;
  std::span<const float> slopes = {};  // kLinear: [H]
  // kLinear: where slopes depend on the query, [positions, H] of them instead: row i - first for the query at i. For
  // causal attention, without a gradient of their own.
  ConstMat query_slopes = {};
  int64_t first = 0;
  // kTable: [H, n + ahead], entry (h, n - 1 - d) is the bias at distances d = n - 1 .. 0, -1 .. -ahead. The entries at
  // the ends hold beyond them.
  ConstMat table = {};
  int64_t ahead = 0;            // kTable: entries for keys behind the query; 0: |d| counts
  bool wants_gradient = false;  // the backward pass then sums dLoss/dbias by (head, distance)
};

// Scores that depend on more than distance. Rows are queries, columns keys, at consecutive positions.
class ScoreTerm {
 public:
  struct Tile {
    int64_t sequence, head;
    int64_t query, rows;  // position of the first, how many
    int64_t key, cols;
    int64_t stride;  // floats between rows
  };
  virtual ~ScoreTerm() = default;
  // s[r][c] += term. Entries no query sees are ignored.
  virtual void add(const Tile& tile, float* s) const = 0;
  // d_s[r][c] is the gradient of the term; it is 0 where no query sees the key. Runs on several threads: calls at the
  // same time differ in (sequence, head) or in the keys. A term of the query alone gets no gradient: its row sums to 0.
  virtual void add_gradient(const Tile& tile, const float* d_s) = 0;
  // The most it can add to a score. Far keys can be left out only where this is finite.
  virtual float most() const { return HUGE_VALF; }
};

struct AttentionShape {
  int64_t sequences = 0, queries = 0, heads = 0, head_dim = 0;
  int64_t key_heads = 0;  // heads of keys and values, each shared by as many neighbouring heads of queries; 0: H
  // Of a larger batch that comes in calls of unlike size: sequences that each has at least; 0: these. The backward pass cuts
  // the work for its threads by them, so that a sequence has the same bits in all.
  int64_t together = 0;
  int64_t stored_heads() const { return key_heads > 0 ? key_heads : heads; }
  int64_t group() const { return heads / stored_heads(); }
  int64_t width() const { return heads * head_dim; }
  int64_t query_tiles() const;
};

// Which keys query t of sequence b sees: those up to itself when causal, those nearer than `window` when there is one,
// and of these the positions [first, last) where such bounds are given, at entry b * stride + t.
struct VisibleKeys {
  bool causal = true;
  int64_t window = 0;  // |i - j| < window; 0: any distance
  const int32_t* first = nullptr;
  const int32_t* last = nullptr;
  int64_t stride = 0;
};

struct AttentionOptions {
  float scale = 0;  // 0: 1 / sqrt(D)
  VisibleKeys visible;
  DistanceBias bias;
  Rotation rotation;
  ScoreTerm* term = nullptr;
  float dropout = 0;
  uint64_t dropout_key = 0;
  int64_t dropout_heads = 0;  // of the sequences in front of these: dropout goes by place in the whole batch
  // Far keys are left out once the probability they could hold is proven to be at most this. 0: never.
  // Takes effect for biases whose tail has a bound (kLinear with positive slopes).
  float epsilon = 0;
};

// The key tiles of one query tile: [first, last) hold a visible key, [begin, end) were visited, and the first as well
// where `sink` says so.
struct VisitedTiles {
  int32_t first = 0, last = 0;
  int32_t begin = 0, end = 0;
  bool sink = false;
  bool contains(int64_t tile) const { return (tile >= begin && tile < end) || (sink && tile == first); }
};

struct AttentionQueries {
  ConstNumberHeads q;                 // [B, T, H]
  std::span<const int64_t> position;  // [B] of the first query
  NumberHeads out;                    // [B, T, H]
  std::span<float> lse;               // [B, H, T]
  std::span<VisitedTiles> visited;    // [B, H, query tiles]
  std::span<float> q_norm = {};       // [B, H, T] or empty: |q_i| with the scale of the scores
};

// out, lse, visited and q_norm from q and the keys in the store.
void attention_forward(Context& context, const AttentionShape& shape, const AttentionOptions& options,
                       const AttentionQueries& queries, const KeyStore& store);

struct AttentionForwardResult {
  ConstNumberHeads q, k, v;
  int64_t keys = 0;                   // S, at positions 0 .. S - 1
  std::span<const int64_t> position;  // [B] of the first query
  ConstNumberHeads out;
  std::span<const float> lse;
  std::span<const VisitedTiles> visited;
};

struct AttentionGradients {
  ConstHeads d_out;
  NumberHeads d_q, d_k, d_v;
  // Where the bias wants it: like its table; kLinear: [H, n], n > every distance. With groups of tokens one below the
  // other, [groups H, n].
  Mat d_bias;
  RowGroups groups = {};
};

// d_q, d_k, d_v = and d_bias += from d_out.
void attention_backward(Context& context, const AttentionShape& shape, const AttentionOptions& options,
                        const AttentionForwardResult& forward, const AttentionGradients& gradients);

// Attention over two sets of keys from that over each:   o = (e^lse_a o_a + e^lse_b o_b) / (e^lse_a + e^lse_b)
struct AttentionResult {
  Heads out;             // [B, T, H]
  std::span<float> lse;  // [B, H, T]
};
void merge_attention(Context& context, const AttentionShape& shape, const AttentionResult& from,
                     const AttentionResult& into);

struct TileCount {
  int64_t seen = 0, all = 0;  // key tiles visited, key tiles with a visible key
};
TileCount count_tiles(std::span<const VisitedTiles> visited);

}  // namespace longshot
