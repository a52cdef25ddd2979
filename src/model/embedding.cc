#include "model/embedding.h"

#include <cmath>

#include "kernels/gather.h"

namespace longshot {
namespace {

// Of the first logits: the loss is above ln V by half of its square, 0.08. Inputs times sqrt(C) have it too.
constexpr double kLogitDeviation = 0.4;

}  // namespace

double initial_output(const ModelConfig& config) {
  const auto dim = static_cast<double>(config.dim);
  return config.final_norm ? kLogitDeviation / std::sqrt(dim) : 1 / dim;
}

double initial_embedding(const ModelConfig& config) {
  return config.tied ? initial_output(config) : kLogitDeviation / std::sqrt(static_cast<double>(config.dim));
}

Initializer initial_final_gains(const ModelConfig& config) {
  return config.tied && !config.is_adaptive() ? alternating(1) : constant(1);
}

TokenEmbedding::TokenEmbedding(const ModelConfig& config, Parameters& parameters)
    : parameters_(parameters), scale_(config.embed_scale ? std::sqrt(static_cast<float>(config.dim)) : 1.0f) {
  weight_ = parameters.add("embed.weight", {config.vocab, config.dim}, true, gaussian(initial_embedding(config)));
}

// x_r = scale E[token_r]
void TokenEmbedding::forward(Context& context, std::span<const int32_t> tokens, Mat x) {
  gather(context, parameters_.weight(weight_), tokens, scale_, x);
}

// dE[token_r] += scale dx_r
void TokenEmbedding::backward(Context& context, std::span<const int32_t> tokens, const Gradient& gradient) {
  scatter_add(context, {gradient.dx, tokens, scale_}, parameters_.grad_mat(weight_), gradient.groups, order_);
}

}  // namespace longshot
