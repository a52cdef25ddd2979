#include "model/parts.h"

#include <cmath>

#include "kernels/gemm.h"
#include "model/rows.h"

namespace longshot {

Linear::Linear(Parameters& parameters, const std::string& name, Shape shape, bool bias, double gain)
    : parameters_(&parameters) {
  const double deviation = gain * std::sqrt(2.0 / static_cast<double>(shape.out + shape.in));
  weight_ = parameters.add(name + ".weight", {shape.out, shape.in}, true, gaussian(deviation));
  if (bias) bias_ = parameters.add(name + ".bias", {shape.out}, false, constant(0));
}

void Linear::backward(Context& context, ConstMat x, ConstMat dy, Mat dx) const {
  gemm_tn(context, dy, x, parameters_->grad_mat(weight_), true);
  if (bias_) {
    float* d_bias = parameters_->grad(*bias_).data();
    context.ranges(dy.cols, 64, [&](int64_t first, int64_t last) { column_sums(dy, first, last, d_bias); });
  }
  gemm_nn(context, dy, weight(), dx);
}

NormLayer::NormLayer(Parameters& parameters, const ModelConfig& config, const std::string& name)
    : parameters_(&parameters), rms_(config.norm == "rmsnorm") {
  weight_ = parameters.add(name + ".weight", {config.dim}, false, constant(1));
  if (!rms_ && config.bias) bias_ = parameters.add(name + ".bias", {config.dim}, false, constant(0));
}

Norm NormLayer::view() const {
  Norm norm{.weight = parameters_->value(weight_), .bias = {}, .rms = rms_};
  if (bias_) norm.bias = parameters_->value(*bias_);
  return norm;
}

void NormLayer::forward(Context& context, ConstMat x, Mat y, Stats stats) const {
  const Norm norm = view();
  parallel_rows(context, x.rows, [&](int64_t r, int64_t n) {
    norm_forward(norm, x.rows_from(r, n), y.rows_from(r, n), stats.mean.data() + r, stats.rstd.data() + r);
  });
}

void NormLayer::backward(Context& context, ConstMat dy, ConstMat x, Stats stats, Mat dx) const {
  const Norm norm = view();
  float* d_weight = parameters_->grad(weight_).data();
  float* d_bias = bias_ ? parameters_->grad(*bias_).data() : nullptr;
  context.ranges(x.cols, 64, [&](int64_t first, int64_t last) {
    norm_backward_weights(dy, x, stats.mean.data(), stats.rstd.data(), first, last, d_weight, d_bias);
  });
  parallel_rows(context, x.rows, [&](int64_t r, int64_t n) {
    norm_backward(norm, dy.rows_from(r, n), x.rows_from(r, n), stats.mean.data() + r, stats.rstd.data() + r,
                  dx.rows_from(r, n));
  });
}

}  // namespace longshot
