// The output side: hidden vectors to a distribution over tokens, and its loss. The [tokens, vocabulary] matrix never
// exists as a whole: it is made and used up in chunks of rows.
#pragma once
#include <memory>
#include <span>

#include "kernels/product.h"
#include "model/config.h"
#include "model/parameters.h"

namespace longshot {

class OutputLoss {
 public:
  virtual ~OutputLoss() = default;
  // Floats of scratch memory that the calls below want for up to `rows` rows.
  virtual int64_t scratch_floats(int64_t rows) const = 0;
  struct Rows {
    ConstMat hidden;                   // [rows, C]
    std::span<const int32_t> targets;  // [rows]; a negative one is not scored
    std::span<float> scratch;          // scratch_floats(rows)
    std::span<float> losses;           // [rows]
  };
  // losses[r] = -ln p(target_r | hidden_r); 0 where the target is negative.
  virtual void loss(Context& context, const Rows& rows) = 0;
  // The same, and with loss = scale * sum: d_hidden, and adds to the parameters' gradients.
  struct Gradient {
    float scale;
    Mat d_hidden;                // [rows, C]
    uint64_t dropout_key = 0;    // for outputs that have dropout of their own, ..
    int64_t first_row = 0;       // .. by place in the whole batch
    RowGroups groups = {};       // of the rows
    std::span<float> room = {};  // gradient_room(groups) for the scratch memory in use
  };
  // Floats that sums by groups want, where scratch memory is for up to `rows` rows.
  virtual int64_t gradient_room(const RowGroups& groups, int64_t rows) const = 0;
  virtual void loss_and_gradient(Context& context, const Rows& rows, const Gradient& gradient) = 0;
  // Of one row, forward; rare words left out.
  virtual int64_t multiply_adds() const = 0;
  // ln p of every token: out[rows, V].
  virtual void log_probabilities(Context& context, ConstMat hidden, Mat out) = 0;
};

// logits = hidden W^T, W[V, C]: the embedding's own matrix when tied.
class LinearOutput : public OutputLoss {
 public:
  LinearOutput(Parameters& parameters, GradientId weight, int64_t vocab)
      : parameters_(parameters), weight_(weight), vocab_(vocab) {}
  int64_t gradient_room(const RowGroups& groups, int64_t rows) const override;
  int64_t scratch_floats(int64_t rows) const override;
  void loss(Context& context, const Rows& rows) override;
  void loss_and_gradient(Context& context, const Rows& rows, const Gradient& gradient) override;
  void log_probabilities(Context& context, ConstMat hidden, Mat out) override;

  int64_t multiply_adds() const override { return weight().out() * weight().in(); }

 private:
  Weight weight() const { return parameters_.weight(weight_.of); }
  Mat logits(std::span<float> scratch) const;  // [chunk, V]
  Parameters& parameters_;
  GradientId weight_;
  int64_t vocab_;
};

}  // namespace longshot
