// Attention on memory of one's own: forward and backward, one call each, on plain pointers.
//
//   s_ij = scale q_i . k_j + b_h(i - j),  first_i <= j < last_i;    p_i = softmax(s_i);    o_i = sum_j p_ij v_j
//
//   longshot::Context context;                            // threads; see base/context.h
//   longshot::Attention attention({.queries = T, .keys = T, .heads = H, .head_dim = D,
//                                  .bias = {.kind = longshot::DistanceBias::Kind::kLinear, .slopes = slopes}});
//   const auto heads = [&](auto* x) { return longshot::packed_heads(x, T, H, D); };          // [T, H, D]
//   attention.forward(context, {heads(q), heads(k), heads(v)}, heads(out));
//   attention.backward(context, {heads(q), heads(k), heads(v)}, heads(out), heads(d_out),
//                      {.d_q = heads(d_q), .d_k = heads(d_k), .d_v = heads(d_v), .d_slopes = d_slopes});
//
// Everything is float and stays where it is; only the D numbers of one head must lie side by side. Memory is linear in
// the number of queries and keys. examples/attention.cc is a whole program.
#pragma once
#include <optional>
#include <vector>

#include "kernels/attention.h"

namespace longshot {

struct AttentionProblem {
  int64_t sequences = 1;
  int64_t queries = 0, keys = 0;  // of each sequence
  int64_t heads = 1;
  int64_t key_heads = 0;  // of keys and values; must divide heads, neighbouring heads share one. 0: as many as heads
  int64_t head_dim = 0;
  float scale = 0;  // of q . k; 0: 1 / sqrt(head_dim)
  // Keys are at positions 0, 1, ..; queries at consecutive positions from here on. Not set: keys - queries, so that the
  // last query is at the last key.
  std::optional<int64_t> first_position = std::nullopt;
  bool causal = true;  // a query sees no key behind its own position
  int64_t window = 0;  // and none at a distance |i - j| of this or more; 0: any distance
  // Where not empty, query t of sequence b sees positions [first_key, last_key) alone, entry b * queries + t of these.
  std::span<const int32_t> first_key = {}, last_key = {};
  // -slope |i - j|, a table over distances, or nothing; see kernels/attention.h. wants_gradient is ignored: what
  // backward is given a place for, it computes.
  DistanceBias bias = {};
  // Far keys may be left out once they are proven to hold at most this share of a query's probability. 0: none are.
  float epsilon = 0;
};

struct AttentionInputs {
  ConstHeads q;     // [sequences, queries, heads]
  ConstHeads k, v;  // [sequences, keys, key_heads]
};

// All of them are written, not added to.
struct AttentionInputGradients {
  Heads d_q, d_k, d_v;
  std::span<float> d_slopes = {};  // [heads], for a linear bias; empty: not wanted
  Mat d_table = {};                // like the bias's table, for a table; no data: not wanted
};

// Vectors packed as [sequences, tokens, heads, head_dim].
template <class T>
BasicHeads<T> packed_heads(T* data, int64_t tokens, int64_t heads, int64_t head_dim) {
  return {data, tokens * heads * head_dim, heads * head_dim, head_dim};
}

// One problem, solved as often as wanted. Holds packed keys and values and what the backward pass needs; allocates when
// it is made, and in a backward pass with a gradient of slopes. Spans and tables of the problem are read at every call.
class Attention {
 public:
  // Throws Error(kUsage) if the sizes contradict each other.
  explicit Attention(const AttentionProblem& problem);

  // A query that sees no key gets 0.
  void forward(Context& context, const AttentionInputs& inputs, const Heads& out);
  // After forward() on the same inputs; `out` is what it wrote.
  void backward(Context& context, const AttentionInputs& inputs, const ConstHeads& out, const ConstHeads& d_out,
                const AttentionInputGradients& gradients);

  // Of the last forward(): ln sum_j e^s_ij, [sequences, heads, queries]; -inf where a query sees no key.
  std::span<const float> lse() const { return lse_; }
  TileCount tiles() const { return count_tiles(visited_); }

 private:
  int64_t distances() const;

  AttentionProblem problem_;
  AttentionShape shape_;
  AttentionOptions options_;
  std::vector<int64_t> query_position_, key_position_;  // [sequences]
  std::vector<float> lse_;
  std::vector<VisitedTiles> visited_;
  KeyStore store_;
  Workspace memory_;
};

}  // namespace longshot
