// The two parts every block is made of: linear maps and norms, each with its parameters.
#pragma once
#include <optional>
#include <string>

#include "kernels/rowwise.h"
#include "model/config.h"
#include "model/parameters.h"

namespace longshot {

// y = x W^T + b, W[out, in]. The bias is left to the row-wise kernel that touches y next.
class Linear {
 public:
  struct Shape {
    int64_t out, in;
  };
  Linear(Parameters& parameters, const std::string& name, Shape shape, bool bias, double gain = 1);
  Mat weight() const { return parameters_->value_mat(weight_); }
  const float* bias() const { return bias_ ? parameters_->value(*bias_).data() : nullptr; }
  // dW += dy^T x,  db += sum dy,  dx = dy W
  void backward(Context& context, ConstMat x, ConstMat dy, Mat dx) const;

 private:
  Parameters* parameters_;
  ParameterId weight_;
  std::optional<ParameterId> bias_;
};

// LayerNorm or RMSNorm over rows.
class NormLayer {
 public:
  struct Stats {
    std::span<float> mean, rstd;  // [N]
  };
  NormLayer(Parameters& parameters, const ModelConfig& config, const std::string& name);
  Norm view() const;
  void forward(Context& context, ConstMat x, Mat y, Stats stats) const;
  // dx += gradient through the norm; adds to the parameters' gradients. `stats` as forward left them.
  void backward(Context& context, ConstMat dy, ConstMat x, Stats stats, Mat dx) const;

 private:
  Parameters* parameters_;
  ParameterId weight_;
  std::optional<ParameterId> bias_;
  bool rms_;
};

}  // namespace longshot
