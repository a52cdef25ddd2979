// The two parts every block is made of: linear maps and norms, each with its parameters.
#pragma once
#include <optional>
#include <string>

#include "kernels/norm.h"
#include "kernels/product.h"
#include "kernels/rowwise.h"
#include "model/config.h"
#include "model/parameters.h"

namespace longshot {

// y = x W^T + b, W[out, in].
class Linear {
 public:
  struct Shape {
    int64_t out, in;
  };
  Linear(Parameters& parameters, const std::string& name, Shape shape, bool bias, double gain = 1);

  // y = x W^T. The bias is left to the row-wise operation that touches y next.
  void forward(Context& context, ConstNumberMat x, Mat y) const { product(context, x, weight(), y); }
  // dW += dy^T x,  db += sum dy,  dx = dy W
  void backward(Context& context, ConstNumberMat x, ConstNumberMat dy, Mat dx, const RowGroups& groups);

  Weight weight() const { return parameters_->weight(weight_); }
  const float* bias() const { return bias_ ? parameters_->value(*bias_).data() : nullptr; }
  // Of one row, forward.
  int64_t multiply_adds() const { return weight().out() * weight().in(); }

 private:
  Parameters* parameters_;
  ParameterId weight_;
  std::optional<ParameterId> bias_;
};

// LayerNorm or RMSNorm over rows.
class NormLayer {
 public:
  NormLayer(Parameters& parameters, const ModelConfig& config, const std::string& name,
            Initializer gains = constant(1));
  void forward(Context& context, ConstNumberMat x, NumberMat y, NormStats stats) const;
  // dx += gradient through the norm; adds to the parameters' gradients. `stats` as forward left them.
  void backward(Context& context, ConstMat dy, const NormInput& input, Mat dx, const RowGroups& groups);

  Norm view() const;

 private:
  Parameters* parameters_;
  ParameterId weight_;
  std::optional<ParameterId> bias_;
  bool rms_;
  float epsilon_;
};

}  // namespace longshot
