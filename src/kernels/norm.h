// Layer and RMS norms of the rows of whole matrices. Inputs and outputs may be bf16; what is computed of them are floats.
#pragma once
#include <span>

#include "base/context.h"
#include "base/groups.h"
#include "kernels/numbers.h"

namespace longshot {

// y = weight * (x - mean) * rstd + bias, with mean and 1 / standard deviation of each row; RMS norm has mean = 0.
struct Norm {
  std::span<const float> weight;  // [C]
  std::span<const float> bias;    // [C] or empty
  bool rms = false;
  float eps = 1e-5f;
};
struct NormStats {
  std::span<float> mean, rstd;  // [N] or longer
};
struct NormGradient {
  std::span<float> weight;  // [C]
  std::span<float> bias;    // [C] or empty
};
void norm_forward(Context& context, const Norm& norm, ConstNumberMat x, NumberMat y, NormStats stats);
// dx += rstd * (g - mean(g) - xhat mean(g xhat)),  g = weight dy;  RMS norm: without the mean(g) term.
// `stats` as forward left them for x.
struct NormInput {
  ConstNumberMat x;
  NormStats stats;
};
void norm_backward(Context& context, const Norm& norm, ConstMat dy, const NormInput& input, Mat dx);
// d_weight[c] += sum_r dy xhat,  d_bias[c] += sum_r dy;  by groups of rows where there are several
void norm_backward_weights(Context& context, ConstMat dy, const NormInput& input, const NormGradient& gradient,
                           const RowGroups& groups = {});

}  // namespace longshot
