#include "model/embedding.h"

#include <cmath>

#include "model/rows.h"

namespace longshot {

TokenEmbedding::TokenEmbedding(const ModelConfig& config, Parameters& parameters)
    : parameters_(parameters), scale_(config.embed_scale ? std::sqrt(static_cast<float>(config.dim)) : 1.0f) {
  const double deviation = config.embed_scale ? 1 / std::sqrt(static_cast<double>(config.dim)) : 0.02;
  weight_ = parameters.add("embed.weight", {config.vocab, config.dim}, true, gaussian(deviation));
}

// x_r = scale E[token_r]
void TokenEmbedding::forward(Context& context, std::span<const int32_t> tokens, Mat x) {
  const Mat table = parameters_.value_mat(weight_);
  parallel_rows(context, x.rows, [&](int64_t first, int64_t count) {
    for (int64_t r = first; r < first + count; ++r) {
      const float* from = table.row(tokens[static_cast<size_t>(r)]);
      float* to = x.row(r);
      for (int64_t c = 0; c < x.cols; ++c) to[c] = scale_ * from[c];
    }
  });
}

// dE[token_r] += scale dx_r. Threads share out columns, so that equal tokens add up in a fixed order.
void TokenEmbedding::backward(Context& context, std::span<const int32_t> tokens, ConstMat dx) {
  const Mat d_table = parameters_.grad_mat(weight_);
  context.ranges(dx.cols, 32, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < dx.rows; ++r) {
      const float* from = dx.row(r);
      float* to = d_table.row(tokens[static_cast<size_t>(r)]);
      for (int64_t c = begin; c < end; ++c) to[c] += scale_ * from[c];
    }
  });
}

}  // namespace longshot
