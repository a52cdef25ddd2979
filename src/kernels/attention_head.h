// What the two passes of attention share: where a head's rows are, how they are rotated, what a tile of scores is.
#pragma once
#include <cmath>

#include "base/rng.h"
#include "kernels/attention.h"
#include "kernels/attention_tile.h"

namespace longshot {

inline int64_t padded_dim(int64_t head_dim) { return round_up(head_dim, kPanel); }
inline int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

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

// Floats of scratch memory per thread.
int64_t forward_floats(int64_t head_dim);
int64_t backward_floats(int64_t tokens, int64_t head_dim);
int64_t backward_parts(const AttentionShape& shape, int threads);  // tasks a head is cut into
inline int64_t query_gradient_floats(const AttentionShape& shape) { return shape.queries * padded_dim(shape.head_dim); }
inline int64_t d_bias_stride(const AttentionShape& shape) { return round_up(shape.keys() + kPanel, kPanel); }

// A head of one sequence inside qkv or out: rows are tokens.
struct Head {
  int64_t sequence, head, index;  // index = sequence * H + head
};

inline Head head_of(const AttentionShape& shape, int64_t index) {
  return {index / shape.heads, index % shape.heads, index};
}

enum Part { kQuery = 0, kKey = 1, kValue = 2 };

inline const float* head_row(ConstMat m, const AttentionShape& shape, const Head& h, int64_t part, int64_t token) {
  return m.row(h.sequence * shape.queries + token) + part * shape.width() + h.head * shape.head_dim;
}
inline float* head_row(Mat m, const AttentionShape& shape, const Head& h, int64_t part, int64_t token) {
  return m.row(h.sequence * shape.queries + token) + part * shape.width() + h.head * shape.head_dim;
}

inline RotateCopy with_rotation(RotateCopy copy, const Rotation& rotation, int64_t position, float direction) {
  if (rotation.cos.cols == 0) return copy;
  copy.cos = rotation.cos.row(position);
  copy.sin = rotation.sin.row(position);
  copy.pairs = rotation.cos.cols;
  copy.interleaved = rotation.interleaved;
  copy.direction = direction;
  return copy;
}

inline float score_scale(const AttentionShape& shape) { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }

inline ScoreTile score_tile(const AttentionShape& shape, const AttentionOptions& options, const Head& h,
                            int64_t first_query, int64_t rows, int64_t key0, float* s) {
  ScoreTile t{.s = s,
              .rows = rows,
              .cols = std::min(kKeyTile, shape.keys() - key0),
              .query0 = shape.past + first_query,
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

}  // namespace longshot
