// The input side: token ids to vectors.
#pragma once
#include <memory>
#include <span>

#include "model/config.h"
#include "model/parameters.h"

namespace longshot {

class InputEmbedding {
 public:
  virtual ~InputEmbedding() = default;
  // x[n, C] = vectors of n tokens.
  virtual void forward(Context& context, std::span<const int32_t> tokens, Mat x) = 0;
  // Adds to the gradients. dx[n, C].
  virtual void backward(Context& context, std::span<const int32_t> tokens, ConstMat dx) = 0;
};

// One matrix [V, C], times sqrt(C) where the configuration says so.
class TokenEmbedding : public InputEmbedding {
 public:
  TokenEmbedding(const ModelConfig& config, Parameters& parameters);
  void forward(Context& context, std::span<const int32_t> tokens, Mat x) override;
  void backward(Context& context, std::span<const int32_t> tokens, ConstMat dx) override;
  ParameterId weight() const { return weight_; }

 private:
  Parameters& parameters_;
  ParameterId weight_;
  float scale_;
};

}  // namespace longshot
