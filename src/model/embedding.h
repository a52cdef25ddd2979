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
  // Of one token, forward.
  virtual int64_t multiply_adds() const = 0;
};

// Standard deviations and gains that weights start with, so that
//   - inputs have unit variance where they are scaled by sqrt(C), as positions that are added to them expect
//   - logits are small and the first loss is ln V: through the gain of the final norm, or where there is none through
//     the matrix itself. Tied, a logit would otherwise begin by favouring the input's own token, by up to sqrt(C).
// Adaptive input and softmax start as the reference's do, all norms with 1.
double initial_embedding(const ModelConfig& config);
double initial_output(const ModelConfig& config);
double initial_final_gain(const ModelConfig& config);

// One matrix [V, C], times sqrt(C) where the configuration says so.
class TokenEmbedding : public InputEmbedding {
 public:
  TokenEmbedding(const ModelConfig& config, Parameters& parameters);
  void forward(Context& context, std::span<const int32_t> tokens, Mat x) override;
  void backward(Context& context, std::span<const int32_t> tokens, ConstMat dx) override;
  int64_t multiply_adds() const override { return 0; }  // a look-up
  ParameterId weight() const { return weight_; }

 private:
  Parameters& parameters_;
  ParameterId weight_;
  float scale_;
};

}  // namespace longshot
