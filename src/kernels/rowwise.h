// Row-wise kernels. Serial on the rows they are given: the caller cuts rows into blocks that fit a cache and hands
// them to threads, so that several kernels can pass over a block while it is warm.
#pragma once
#include <cstdint>
#include <span>

#include "base/view.h"

namespace longshot {

// Factors 0 or 1 / (1 - rate), a function of (key, row, column): nothing is stored for the backward pass.
struct Dropout {
  float rate = 0;
  uint64_t key = 0;
  int64_t first_row = 0;  // of the block, in the whole matrix
  Dropout block(int64_t first) const { return {rate, key, first_row + first}; }
};

// y = weight * (x - mean) * rstd + bias, with mean and 1 / standard deviation of each row; RMS norm has mean = 0.
struct Norm {
  std::span<const float> weight;  // [C]
  std::span<const float> bias;    // [C] or empty
  bool rms = false;
  float eps = 1e-5f;
};
void norm_forward(const Norm& norm, ConstMat x, Mat y, float* mean, float* rstd);
// dx += rstd * (g - mean(g) - xhat mean(g xhat)),  g = weight dy;  RMS norm: without the mean(g) term.
void norm_backward(const Norm& norm, ConstMat dy, ConstMat x, const float* mean, const float* rstd, Mat dx);
// d_weight[c] += sum_r dy xhat,  d_bias[c] += sum_r dy  for columns [first, last)
void norm_backward_weights(ConstMat dy, ConstMat x, const float* mean, const float* rstd, int64_t first, int64_t last,
                           float* d_weight, float* d_bias);

// out = x + drop(y + bias). `bias` may be null. out may be x.
void add_residual(ConstMat x, ConstMat y, const float* bias, const Dropout& drop, Mat out);
// out = drop(x). out may be x.
void drop_rows(ConstMat x, const Dropout& drop, Mat out);
// x[r] += bias
void add_bias(Mat x, const float* bias);
// sums[c] += sum_r x[r][c] for columns [first, last)
void column_sums(ConstMat x, int64_t first, int64_t last, float* sums);

enum class Activation { kRelu, kGelu, kSwiglu };
// pre += bias (null: none); act = drop(f(pre)):
//   relu  max(0, x)      gelu  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//   swiglu  pre holds [gate, up], twice as wide as act: gate / (1 + e^-gate) * up
void activation_forward(Activation kind, Mat pre, const float* bias, const Dropout& drop, Mat act);
// d_pre from d_act; d_pre may be d_act where the widths agree.
void activation_backward(Activation kind, ConstMat pre, ConstMat d_act, const Dropout& drop, Mat d_pre);

// loss[r] = log sum_c e^x[r][c] - x[r][target]. With a gradient, x becomes (softmax(x) - one_hot(target)) * scale.
// A negative target scores nothing: loss 0, gradient 0.
void cross_entropy(Mat x, const int32_t* targets, float* loss, bool gradient, float scale);

}  // namespace longshot
