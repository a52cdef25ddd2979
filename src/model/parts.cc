#include "model/parts.h"

#include <cmath>

namespace longshot {

Linear::Linear(Parameters& parameters, const std::string& name, Shape shape, bool bias, double gain)
    : parameters_(&parameters) {
  const double deviation = gain * std::sqrt(2.0 / static_cast<double>(shape.out + shape.in));
  weight_ = parameters.add(name + ".weight", {shape.out, shape.in}, true, gaussian(deviation));
  if (bias) bias_ = parameters.add(name + ".bias", {shape.out}, false, constant(0));
}

void Linear::backward(Context& context, ConstNumberMat x, ConstNumberMat dy, Mat dx, const RowGroups& groups) {
  product_gradient(context, dy, x, parameters_->grad_mat(weight_), groups);
  if (bias_) column_sums(context, dy, parameters_->grad(*bias_), groups);
  product_transposed(context, dy, weight(), dx);
}

NormLayer::NormLayer(Parameters& parameters, const ModelConfig& config, const std::string& name, Initializer gains)
    : parameters_(&parameters),
      rms_(config.norm == NormKind::kRmsNorm),
      epsilon_(static_cast<float>(config.norm_epsilon)) {
  weight_ = parameters.add(name + ".weight", {config.dim}, false, std::move(gains));
  if (!rms_ && config.bias) bias_ = parameters.add(name + ".bias", {config.dim}, false, constant(0));
}

Norm NormLayer::view() const {
  Norm norm{.weight = parameters_->value(weight_), .bias = {}, .rms = rms_, .eps = epsilon_};
  if (bias_) norm.bias = parameters_->value(*bias_);
  return norm;
}

void NormLayer::forward(Context& context, ConstNumberMat x, NumberMat y, NormStats stats) const {
  norm_forward(context, view(), x, y, stats);
}

void NormLayer::backward(Context& context, ConstMat dy, const NormInput& input, Mat dx, const RowGroups& groups) {
  NormGradient gradient{.weight = parameters_->grad(weight_), .bias = {}};
  if (bias_) gradient.bias = parameters_->grad(*bias_);
  norm_backward_weights(context, dy, input, gradient, groups);
  norm_backward(context, view(), dy, input, dx);
}

}  // namespace longshot
