// The input side: token ids to vectors.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"

namespace longshot {

class InputEmbedding {
 public:
  virtual ~InputEmbedding() = default;
  // x[n, C] = vectors of n tokens.
  virtual void forward(Context& context, std::span<const int32_t> tokens, Mat x) = 0;
  // Adds to the gradients.
  struct Gradient {
    ConstMat dx;  // [n, C]
    RowGroups groups = {};
    Mat room;  // [n, C]
  };
  virtual void backward(Context& context, std::span<const int32_t> tokens, const Gradient& gradient) = 0;
  // Of one token, forward.
  virtual int64_t multiply_adds() const = 0;
};

// Where training starts (docs/model.md). Logits are small, so that the first loss is ln V: standard deviations of the
// matrices, gains of the final norm. A tied output meets the input's own vector e in the residual stream and would
// begin by predicting the input's token, with a logit of about sum_i e_i^2; gains of alternating sign make it
// sum_i +-e_i^2, which is no larger than any other token's. Adaptive input and softmax start as the reference's do.
double initial_embedding(const ModelConfig& config);
double initial_output(const ModelConfig& config);
Initializer initial_final_gains(const ModelConfig& config);

// One matrix [V, C], times sqrt(C) where the configuration says so.
class TokenEmbedding : public InputEmbedding {
 public:
  TokenEmbedding(const ModelConfig& config, Parameters& parameters);
  void forward(Context& context, std::span<const int32_t> tokens, Mat x) override;
  void backward(Context& context, std::span<const int32_t> tokens, const Gradient& gradient) override;
  int64_t multiply_adds() const override { return 0; }  // a look-up
  ParameterId weight() const { return weight_; }

 private:
  Parameters& parameters_;
  ParameterId weight_;
  float scale_;
  std::vector<uint64_t> order_;  // of the tokens, room for sums
};

}  // namespace longshot
