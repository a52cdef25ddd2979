// A decoder-only language model: embedding, position, blocks, output. Owns its parameters.
#pragma once
#include <memory>
#include <vector>

#include "model/config.h"
#include "model/embedding.h"
#include "model/layer.h"
#include "model/output.h"
#include "model/parameters.h"
#include "position/position.h"

namespace longshot {

class Transformer {
 public:
  // Declares and allocates; values are zero until initialize() or a checkpoint fills them. With kReserved a model of
  // any size can be measured, or its matrices stored one by one.
  using Memory = Workspace::Kind;
  Transformer(ModelConfig config, bool with_gradients, Memory memory = Memory::kMemory,
              SharedGradients shared = SharedGradients::kTogether);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;
  void initialize(Context& context, uint64_t seed) { parameters_.initialize(context, seed); }

  const ModelConfig& config() const { return config_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  Position& position() { return *position_; }
  std::vector<Layer>& layers() { return layers_; }
  OutputLoss& output() { return *output_; }
  // Of one token in a sequence of `length`, forward; products and causal attention.
  double flops_per_token(int64_t length) const;

  // Tokens of one or more sequences of `length`, the first of sequence b at position first[b].
  struct Tokens {
    std::span<const int32_t> ids;  // [n]
    int64_t length;
    std::span<const int64_t> first;
  };
  // x[n, C]: what enters the first block.
  void embed(Context& context, const Tokens& tokens, Mat x, NormStats stats);
  struct EmbedScratch {
    Mat x, dx;  // [n, C]
    NormStats stats;
    RowGroups groups = {};
    // Of the position method's tensors, a sum for each group.
    std::span<const std::vector<std::span<float>>> position_sums = {};
  };
  void embed_backward(Context& context, const Tokens& tokens, ConstMat dx, const EmbedScratch& scratch);
  // y = final norm of x, or x itself. Returns what to feed to the output.
  ConstMat final_hidden(Context& context, ConstMat x, Mat y, NormStats stats) const;
  // dx += gradient through the final norm; without one dx = dy.
  void final_hidden_backward(Context& context, ConstMat dy, const NormInput& input, Mat dx, const RowGroups& groups);

  // Where the gradients of a part begin in the block. Parts further behind are used later: once a layer's gradients are
  // complete, so is all from there on.
  int64_t gradients_of_layer(int64_t index) const { return layer_begins_[static_cast<size_t>(index)]; }
  int64_t gradients_of_final_norm() const { return layer_begins_.back(); }
  int64_t gradients_of_output() const { return output_begins_; }
  const std::vector<ParameterId>& position_tensors() const { return position_ids_; }

  // Overrides the configured bound on what attention may leave out; see ModelConfig.
  void set_attention_epsilon(double epsilon) { config_.attention_epsilon = epsilon; }
  // Runs with the position method's options of running, see PositionOptions. Error(kUsage) where they do not fit it.
  void run_with(const PositionSettings& settings);
  // Options of attention in layer `index`, without dropout and document mask.
  AttentionOptions attention_options(int64_t index) const;
  // Refuses lengths the position method is not defined for.
  void require_length(int64_t length) const;
  // Makes its tables for positions first .. last - 1, or for whole sequences of `length`.
  void prepare_positions(int64_t first, int64_t last);
  void prepare_positions(int64_t length) { prepare_positions(0, length); }

 private:
  void bind_position();
  // Before the embedding norm.
  void add_embeddings(Context& context, const Tokens& tokens, Mat x);

  ModelConfig config_;
  Parameters parameters_;
  std::vector<ParameterId> position_ids_;
  std::vector<int64_t> layer_begins_;  // and that of the final norm
  int64_t output_begins_ = 0;
  std::unique_ptr<InputEmbedding> embedding_;
  std::unique_ptr<Position> position_;
  std::optional<NormLayer> embedding_norm_;
  std::vector<Layer> layers_;
  std::optional<NormLayer> final_norm_;
  std::unique_ptr<OutputLoss> output_;
};

// Forward once, backward twice that.
double training_flops_per_token(const Transformer& model, int64_t length);

}  // namespace longshot
