// Forward and backward over one batch, in memory laid out once.
#pragma once
#include <span>

#include "model/transformer.h"

namespace longshot {

struct TrainingBatch {
  int64_t sequences = 0, length = 0;
  std::span<const int32_t> inputs, targets;  // [B, T]; a negative target is not scored
  std::span<const int32_t> first_key;        // [B, T] or empty: first position each token may see
};

class TrainingPass {
 public:
  struct Config {
    int64_t sequences = 0, length = 0;
    bool recompute = false;  // keep only each block's input and run the block again in the backward pass
  };
  TrainingPass(Context& context, Transformer& model, Config config);
  // What bytes() would be, without allocating.
  static size_t predict_bytes(Context& context, Transformer& model, Config config);

  // Adds the gradients of scale * (sum of losses) to the model's. Returns the sum of losses.
  // `dropout_key` is of the step and micro-batch; dropout is applied as configured.
  double run(const TrainingBatch& batch, float scale, uint64_t dropout_key);
  // The losses of the last run, one per token.
  std::span<const float> losses() const { return losses_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  struct Unallocated {};
  TrainingPass(Context& context, Transformer& model, Config config, Unallocated);
  void layout(Layout& at);
  LayerPass layer_pass(int64_t index, const TrainingBatch& batch, uint64_t dropout_key);

  Context& context_;
  Transformer& model_;
  Config config_;
  AttentionShape shape_;
  std::vector<int64_t> position_;        // [B] of the first token of each sequence: 0
  std::vector<Mat> streams_;             // [layers + 1] of [N, C]: the input of each layer, and the last output
  std::vector<LayerActivations> saved_;  // one per layer, or one in all when recomputing
  LayerScratch scratch_;
  KeyStore store_;
  Mat final_;                // [N, C]
  Mat d_final_;              // [N, C]
  Mat dx_;                   // [N, C]
  NormStats stats_;          // [N]
  std::span<float> losses_;  // [N]
  std::span<float> output_scratch_;
  Workspace memory_;
};

}  // namespace longshot
