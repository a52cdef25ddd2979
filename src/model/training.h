// Forward and backward over one batch, in memory laid out once.
#pragma once
#include <array>
#include <functional>
#include <span>

#include "model/transformer.h"

namespace longshot {

struct TrainingBatch {
  int64_t sequences = 0, length = 0;
  std::span<const int32_t> inputs, targets;  // [B, T]; a negative target is not scored
  std::span<const int32_t> first_key;        // [B, T] or empty: first position each token may see
  int64_t first_sequence = 0;                // in the batch this is a part of: dropout goes by that
  int64_t together = 0;                      // sequences that every part of that batch has, at least; 0: these
  RowGroups groups = {};                     // of the sequences: gradients and losses are summed by them
};

// Runs in the precision that the context had when the pass was made: in bf16, what waits for the backward pass is stored in it.
class TrainingPass {
 public:
  struct Config {
    int64_t sequences = 0, length = 0;
    bool recompute = false;              // keep only each block's input and run the block again in the backward pass
    std::vector<RowGroups> groups = {};  // of all batches to come
  };
  TrainingPass(Context& context, Transformer& model, Config config);
  // What bytes() would be, without allocating.
  static size_t predict_bytes(Context& context, Transformer& model, Config config);

  // What is told of a pass while it runs.
  struct Events {
    // Parameters are about to be used that lie in front of `end` in their block; further and further behind, at last all.
    std::function<void(int64_t end)> uses = [](int64_t) {};
    // Gradients are complete from `offset` in their block on; from further and further in front, as soon as they are.
    std::function<void(int64_t offset)> complete = [](int64_t) {};
  };
  // Adds the gradients of scale * (sum of losses) to the model's. Returns the sum of losses. Of up to config.sequences.
  // `dropout_key` is of the step; dropout is applied as configured.
  double run(const TrainingBatch& batch, float scale, uint64_t dropout_key, const Events& events);
  double run(const TrainingBatch& batch, float scale, uint64_t dropout_key) {
    return run(batch, scale, dropout_key, Events());
  }
  // The losses of the last run, one per token.
  std::span<const float> losses() const { return losses_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  struct Unallocated {};
  TrainingPass(Context& context, Transformer& model, Config config, Unallocated);
  void layout(Layout& at);
  LayerPass layer_pass(int64_t index, const TrainingBatch& batch, uint64_t dropout_key);
  void set_groups(const TrainingBatch& batch);
  double forward(const TrainingBatch& batch, float scale, uint64_t dropout_key, const Events& events);
  void backward(const TrainingBatch& batch, uint64_t dropout_key, const Events& events);
  void bias_backward(int64_t layer);
  void add_position_sums();
  double sum_of_losses() const;
  Dropout embedding_dropout(const TrainingBatch& batch, uint64_t dropout_key) const;
  LayerActivations saved(size_t layer, int64_t rows) const;

  Context& context_;
  Transformer& model_;
  Config config_;
  Precision precision_;
  AttentionShape shape_;
  std::vector<int64_t> position_;  // [B] of the first token of each sequence: 0
  // [layers + 1] of [N, C]: the input of each layer, and the last output; one and the same where layers keep theirs in bf16.
  std::vector<Mat> streams_;
  std::vector<LayerActivations> saved_;  // one per layer, or one in all when recomputing
  LayerScratch scratch_;
  KeyStore store_;
  Mat final_;                // [N, C]
  Mat d_final_;              // [N, C]
  Mat dx_;                   // [N, C]
  NormStats stats_;          // [N]
  std::span<float> losses_;  // [N]
  std::span<float> output_scratch_, output_room_;
  std::vector<RowGroup> row_groups_;                          // of the batch at hand
  RowGroups groups_;                                          // the same
  std::vector<std::vector<std::span<float>>> position_sums_;  // [groups] of the position method's tensors
  std::array<size_t, kMostDepth> of_sum_{};                   // which group's is a partial sum
  Workspace memory_;
};

}  // namespace longshot
