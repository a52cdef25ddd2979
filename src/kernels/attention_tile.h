// The pieces of tiled attention: row-wise work on a tile of scores, and packing. Serial; the loop over tiles and threads
// is in attention.cc. SIMD stays behind this header.
#pragma once
#include <cstdint>

#include "kernels/attention_keys.h"
#include "kernels/tile_product.h"

namespace longshot {

constexpr int64_t kQueryTile = 96;  // rows of a tile of scores; kKeyTile columns

// A tile of scores s[rows, cols], row stride kKeyTile. Row r is the query at position query0 + r, column c the key at
// position key0 + c. Columns up to the next multiple of kPanel may be written.
struct ScoreTile {
  float* s;
  int64_t rows, cols;
  int64_t query0, key0;
  const KeyRange* visible;        // [rows] positions each row sees
  float slope = 0;                // bias -slope * (i - j)
  const float* slopes = nullptr;  // a slope for each row instead, slope_stride apart
  int64_t slope_stride = 0;
  const float* table = nullptr;  // bias table[table_zero - (i - j)]
  int64_t table_zero = 0;
  uint64_t dropout_key = 0;
  uint32_t dropout_threshold = 0;  // 0: no dropout
  float dropout_scale = 1;
};

// Online softmax. With the running maximum M and sum Z of earlier tiles:
//   s = s + bias;  M' = max(M, max_j s);  s = e^(s - M');  rescale = e^(M - M');  Z' = Z rescale + sum_j s
// then applies dropout to s (the sum is of undropped values). Invisible entries become 0.
void tile_softmax(const ScoreTile& t, float* row_max, float* row_sum, float* rescale);

// s = e^(s + bias - lse), invisible entries 0; all of them where lse is -inf. No dropout.
void tile_probabilities(const ScoreTile& t, const float* lse);

// Where the gradient of the bias is summed: entry zero - (i - j) of row.
struct BiasGradient {
  float* row = nullptr;  // null: it is not wanted
  int64_t zero = 0;
};

// With P in t.s and dP in dp (the gradient of the dropped probabilities):
//   dp = P (drop dP - delta);  t.s = drop P;  d_bias += dp
void tile_score_gradient(const ScoreTile& t, float* dp, const float* delta, const BiasGradient& d_bias);

// y[r] = x[r] * factor[r] for r < rows, rows of `cols` floats.
void scale_rows(float* x, int64_t stride, const float* factor, int64_t rows, int64_t cols);

// Turns `rows` head vectors at positions p0, p0 + 1, .. while copying: y = scale * rotate(x). Columns D .. padded - 1
// of y become 0. `direction` is +1, or -1 for the inverse turn.
struct RotateCopy {
  ConstNumbers x;
  int64_t x_stride;
  Numbers y;
  int64_t y_stride;
  int64_t rows, dim, padded;
  float scale = 1;
  const float* cos = nullptr;  // row of position p0; null: no rotation
  const float* sin = nullptr;
  int64_t pairs = 0;
  int64_t turn_stride = 0;  // from one position's cos and sin to the next's
  bool interleaved = false;
  float direction = 1;
};
void rotate_copy(const RotateCopy& p);

// sum_c x[c] y[c]
float dot(const float* x, ConstNumbers y, int64_t n);

}  // namespace longshot
