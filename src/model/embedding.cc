#include "model/embedding.h"

#include <cmath>

#include "kernels/gather.h"

namespace longshot {

double initial_embedding(const ModelConfig& config) {
  const auto dim = static_cast<double>(config.dim);
  if (config.tied && !config.final_norm) return 1 / dim;
  return config.embed_scale ? 1 / std::sqrt(dim) : 0.02;
}

double initial_output(const ModelConfig& config) {
  const auto dim = static_cast<double>(config.dim);
  return config.final_norm ? 1 / std::sqrt(dim) : 1 / dim;
}

double initial_final_gain(const ModelConfig& config) {
  return config.is_adaptive() ? 1 : 1 / std::sqrt(static_cast<double>(config.dim));
}

TokenEmbedding::TokenEmbedding(const ModelConfig& config, Parameters& parameters)
    : parameters_(parameters), scale_(config.embed_scale ? std::sqrt(static_cast<float>(config.dim)) : 1.0f) {
  weight_ = parameters.add("embed.weight", {config.vocab, config.dim}, true, gaussian(initial_embedding(config)));
}

// x_r = scale E[token_r]
void TokenEmbedding::forward(Context& context, std::span<const int32_t> tokens, Mat x) {
  gather(context, parameters_.value_mat(weight_), tokens, scale_, x);
}

// dE[token_r] += scale dx_r
void TokenEmbedding::backward(Context& context, std::span<const int32_t> tokens, ConstMat dx) {
  scatter_add(context, dx, tokens, scale_, parameters_.grad_mat(weight_));
}

}  // namespace longshot
