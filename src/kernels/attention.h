// Causal attention over whole sequences or on top of a cache, forward and backward, without ever holding an L x L
// matrix. One path for training, evaluation and decoding.
//
//   s_ij = q_i . k_j / sqrt(D) + b_h(i - j),  j <= i;    p_i = softmax(s_i);    o_i = sum_j drop(p_ij) v_j
//
// Letters: B sequences, T new tokens of each, H heads, D head dimension, C = H D.
// Head h owns columns [h D, (h + 1) D) of the queries, of the keys and of the values.
#pragma once
#include <cstdint>
#include <span>

#include "base/context.h"
#include "base/view.h"
#include "base/workspace.h"

namespace longshot {

// What is added to the scores of one layer: nothing, -slope_h * d, or table_h[d], where d = i - j.
struct DistanceBias {
  enum class Kind { kNone, kLinear, kTable };
  Kind kind = Kind::kNone;
  std::span<const float> slopes;  // kLinear: [H]
  ConstMat table;                 // kTable: [H, n], entry (h, n - 1 - d) is the bias at distance d; n covers all
                                  // distances, and 16 more floats behind each row can be read
  bool wants_gradient = false;    // the backward pass then sums dLoss/dbias by (head, distance)
};
constexpr int64_t kTablePadding = 16;

// Rotation of queries and keys: pair c of the first 2 * cos.cols dimensions turns by angle (p, c).
struct Rotation {
  ConstMat cos, sin;         // [positions, pairs]; pairs = 0: none
  bool interleaved = false;  // pairs are (2c, 2c + 1); otherwise (c, c + pairs)
};

struct AttentionShape {
  int64_t sequences = 0, queries = 0, heads = 0, head_dim = 0;
  int64_t past = 0;  // tokens of each sequence that are in the KeyStore already
  int64_t skip = 0;  // leading new tokens that are context only: their keys and values count, no output is made
  int64_t keys() const { return past + queries; }
  int64_t wanted() const { return queries - skip; }
  int64_t width() const { return heads * head_dim; }
  int64_t query_tiles() const;
};

struct AttentionOptions {
  DistanceBias bias;
  Rotation rotation;
  const int32_t* first_key = nullptr;  // [B * T] first position each query may see; null: 0
  float dropout = 0;
  uint64_t dropout_key = 0;
  // Far keys are left out once the probability they could hold is proven to be at most this. 0: never.
  // Takes effect for biases whose tail has a bound (kLinear with positive slopes).
  float epsilon = 0;
};

// Packed keys and values of B * H heads: the cache of a decoder, scratch memory elsewhere.
struct KeyStore {
  int64_t capacity = 0;  // tokens per head, a multiple of the key tile
  int64_t head_dim = 0;
  std::span<float> keys;    // [B H, capacity / 16, D, 16]
  std::span<float> values;  // [B H, capacity, D padded to 16]
  std::span<float> norms;   // [B H, capacity / key tile] largest |k| in the tile

  void layout(Layout& at, int64_t heads_in_all, int64_t tokens, int64_t head_dim);
};

// Which key tiles each query tile visited, for the backward pass and for statistics. [B H, query tiles]
struct VisitedTiles {
  std::span<int32_t> from;  // tiles [from, last] were visited; negative: -from - 1, and tile 0 as well
};

struct AttentionScratch {
  std::span<float> forward;   // per thread
  std::span<float> backward;  // per thread
  std::span<float> d_q;       // per thread, or per part of a head: [T, D]
  std::span<float> d_bias;    // per part of a head, where a gradient of the bias is wanted: [keys + padding]
  void layout(Layout& at, const Context& context, const AttentionShape& shape, bool training, bool bias_gradient);
};

// out[B W, C], lse[B, H, W] from qkv[B T, 3C], W = T - skip wanted tokens. Appends the new keys and values to the store.
void attention_forward(Context& context, const AttentionShape& shape, const AttentionOptions& options, ConstMat qkv,
                       KeyStore& store, AttentionScratch& scratch, Mat out, std::span<float> lse, VisitedTiles visited);

struct AttentionForwardResult {
  ConstMat qkv, out;
  std::span<const float> lse;
  VisitedTiles visited;
};

// d_qkv[B T, 3C] from d_out[B T, C]; d_bias[H, keys] += where the bias wants it. REQUIRES: past = skip = 0.
void attention_backward(Context& context, const AttentionShape& shape, const AttentionOptions& options,
                        const AttentionForwardResult& forward, ConstMat d_out, AttentionScratch& scratch, Mat d_qkv,
                        Mat d_bias);

struct TileCount {
  int64_t seen = 0, all = 0;  // key tiles visited, key tiles with a visible key
};
TileCount count_tiles(const AttentionShape& shape, VisitedTiles visited);

}  // namespace longshot
