// A causal pass of the tiled attention over whole sequences.
#pragma once
#include <cmath>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_reference.h"

namespace longshot {

using Kind = DistanceBias::Kind;

struct Case {
  AttentionShape shape;
  Kind bias = Kind::kNone;
  int64_t table = 0;  // distances in the table; 0: all
  int rotary_pairs = 0;
  bool interleaved = false;
  bool documents = false;
  float epsilon = 0;
  float scale = 1;  // of queries and keys
};

// Owns what the passes need.
struct Fixture {
  explicit Fixture(const Case& c_) : c(c_), n(c_.shape.sequences * c_.shape.queries), width(c_.shape.width()) {
    const int64_t T = c.shape.queries, H = c.shape.heads;
    qkv = random_floats(n * 3 * width, 1);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < 2 * width; ++i) qkv[static_cast<size_t>(r * 3 * width + i)] *= c.scale;
    }
    out.resize(static_cast<size_t>(n * width));
    lse.resize(static_cast<size_t>(n * H));
    visited.resize(static_cast<size_t>(c.shape.sequences * H * c.shape.query_tiles()));
    position.assign(static_cast<size_t>(c.shape.sequences), 0);
    for (int64_t h = 0; h < H; ++h) slopes.push_back(std::exp2(-1.0f - static_cast<float>(h)));
    const int64_t distances = c.table > 0 ? c.table : T;
    table = random_floats(H * distances, 2);
    cos = random_floats(T * c.rotary_pairs, 3), sin = cos;
    for (size_t i = 0; i < cos.size(); ++i) sin[i] = std::sin(cos[i]), cos[i] = std::cos(cos[i]);
    options.bias.kind = c.bias;
    options.bias.slopes = slopes;
    options.bias.table = {table.data(), H, distances};
    options.bias.wants_gradient = c.bias != Kind::kNone;
    options.rotation = {{cos.data(), T, c.rotary_pairs}, {sin.data(), T, c.rotary_pairs}, c.interleaved};
    options.epsilon = c.epsilon;
    if (c.documents) {
      for (int64_t r = 0; r < n; ++r) first_key.push_back(static_cast<int32_t>(r % T - r % T % 37));
      options.visible.first = first_key.data(), options.visible.stride = T;
    }
    memory = Workspace([&](Layout& at) { lay_out(at, T); });
  }
  void lay_out(Layout& at, int64_t tokens) {
    store.layout(at, {c.shape.sequences, c.shape.stored_heads(), c.shape.head_dim, tokens});
  }

  ConstHeads part(int64_t i) const {
    return heads_of(ConstMat(qkv.data() + i * width, n, width, 3 * width), c.shape.queries, c.shape.head_dim);
  }
  void forward(Context& context) {
    append_keys(context, {part(1), part(2), c.shape.queries, position}, options.rotation, store);
    attention_forward(
        context, c.shape, options,
        {part(0), position, heads_of(Mat(out.data(), n, width), c.shape.queries, c.shape.head_dim), lse, visited},
        store);
  }
  void backward(Context& context, const std::vector<float>& d_out) {
    const int64_t T = c.shape.queries, D = c.shape.head_dim;
    d_qkv.assign(qkv.size(), NAN);
    const int64_t columns = c.bias == Kind::kTable ? options.bias.table.cols : T;
    d_bias.assign(static_cast<size_t>(c.shape.heads * columns), 0);
    const auto d_part = [&](int64_t i) { return heads_of(Mat(d_qkv.data() + i * width, n, width, 3 * width), T, D); };
    attention_backward(
        context, c.shape, options,
        {part(0), part(1), part(2), T, position, heads_of(ConstMat(out.data(), n, width), T, D), lse, visited},
        {.d_out = heads_of(ConstMat(d_out.data(), n, width), T, D),
         .d_q = d_part(0),
         .d_k = d_part(1),
         .d_v = d_part(2),
         .d_bias = {d_bias.data(), c.shape.heads, columns}});
  }

  // Columns [i C, (i + 1) C) of x[n, 3 C].
  std::vector<float> columns(const std::vector<float>& x, int64_t i) const {
    std::vector<float> y;
    for (int64_t r = 0; r < n; ++r) {
      const auto row = x.begin() + r * 3 * width + i * width;
      y.insert(y.end(), row, row + width);
    }
    return y;
  }
  PlainAttention plain(const std::vector<float>& d_out) const {
    PlainAttention p;
    p.sequences = c.shape.sequences, p.queries = p.keys = c.shape.queries, p.dim = c.shape.head_dim;
    p.heads = p.key_heads = c.shape.heads;
    p.position = position, p.first = first_key, p.bias = options.bias;
    p.cos = cos, p.sin = sin, p.pairs = c.rotary_pairs, p.interleaved = c.interleaved;
    p.q = columns(qkv, 0), p.k = columns(qkv, 1), p.v = columns(qkv, 2), p.d_out = d_out;
    p.bias_columns = c.bias == Kind::kNone ? 0 : c.shape.queries;
    return p;
  }

  Case c;
  int64_t n, width;
  std::vector<float> qkv, out, lse, slopes, table, cos, sin, d_qkv, d_bias;
  std::vector<VisitedTiles> visited;
  std::vector<int64_t> position;
  std::vector<int32_t> first_key;
  AttentionOptions options;
  KeyStore store;
  Workspace memory;
};

}  // namespace longshot
