#include "model/transformer.h"

#include <cmath>

#include "base/error.h"
#include "kernels/gather.h"
#include "model/adaptive.h"

namespace longshot {

Transformer::Transformer(ModelConfig config, bool with_gradients, Memory memory, SharedGradients shared)
    : config_(std::move(config)) {
  config_.validate();
  AdaptiveBands bands;
  ParameterId tied = 0;
  if (config_.is_adaptive()) {
    bands = add_adaptive_bands(config_, parameters_);
    embedding_ = std::make_unique<AdaptiveEmbedding>(config_, parameters_, bands);
  } else {
    auto embedding = std::make_unique<TokenEmbedding>(config_, parameters_);
    tied = embedding->weight();
    embedding_ = std::move(embedding);
  }
  position_ = config_.make_position();
  for (const PositionTensor& t : position_->tensors()) {
    position_ids_.push_back(parameters_.add("position." + t.name, t.shape, false, t.init));
  }
  if (config_.embedding_norm) embedding_norm_.emplace(parameters_, config_, "embed_norm");
  layers_.reserve(static_cast<size_t>(config_.layers));
  for (int64_t i = 0; i < config_.layers; ++i) {
    layer_begins_.push_back(parameters_.end());
    layers_.emplace_back(config_, parameters_, i);
  }
  layer_begins_.push_back(parameters_.end());
  if (config_.final_norm) final_norm_.emplace(parameters_, config_, "final_norm", initial_final_gains(config_));
  output_begins_ = parameters_.end();
  if (config_.is_adaptive()) {
    output_ = std::make_unique<AdaptiveSoftmax>(config_, parameters_, bands, shared);
  } else {
    const GradientId weight = config_.tied ? parameters_.add_use(tied, shared)
                                           : GradientId{parameters_.add("output.weight", {config_.vocab, config_.dim},
                                                                        true, gaussian(initial_output(config_)))};
    output_ = std::make_unique<LinearOutput>(parameters_, weight, config_.vocab);
  }
  parameters_.allocate(with_gradients, memory);
  bind_position();
}

void Transformer::bind_position() {
  std::vector<std::span<float>> values;
  for (const ParameterId id : position_ids_) values.push_back(parameters_.value(id));
  position_->bind(values);
}

void Transformer::run_with(const PositionSettings& settings) {
  config_.position_options.run_as(settings, config_.position);
  position_ = config_.make_position();
  bind_position();
}

void Transformer::require_length(int64_t length) const {
  require(length <= position_->max_length(), "position method '{}' is defined up to length {}, not {}",
          config_.position, position_->max_length(), length);
}

void Transformer::prepare_positions(int64_t first, int64_t last) {
  require_length(last);
  position_->prepare(first, last);
}

void Transformer::add_embeddings(Context& context, const Tokens& tokens, Mat x) {
  embedding_->forward(context, tokens.ids, x);
  for (int64_t r = 0; r < x.rows; r += tokens.length) {
    position_->add_to_input(x.rows_from(r, tokens.length), tokens.first[static_cast<size_t>(r / tokens.length)]);
  }
}

void Transformer::embed(Context& context, const Tokens& tokens, Mat x, NormStats stats) {
  add_embeddings(context, tokens, x);
  if (embedding_norm_) embedding_norm_->forward(context, x, x, stats);
}

// What the norm read is made again.
void Transformer::embed_backward(Context& context, const Tokens& tokens, ConstMat dx, const EmbedScratch& scratch) {
  if (embedding_norm_) {
    add_embeddings(context, tokens, scratch.x);
    embedding_norm_->forward(context, scratch.x, scratch.dx, scratch.stats);
    clear(scratch.dx);
    embedding_norm_->backward(context, dx, {scratch.x, scratch.stats}, scratch.dx, scratch.groups);
    dx = scratch.dx;
  }
  size_t group = 0;
  const auto& groups = scratch.groups.groups;
  for (int64_t r = 0; r < dx.rows && position_->adds_to_input(); r += tokens.length) {
    while (group + 1 < groups.size() && r >= groups[group].end - scratch.groups.begin) ++group;
    position_->add_to_input_backward(dx.rows_from(r, tokens.length),
                                     tokens.first[static_cast<size_t>(r / tokens.length)],
                                     scratch.position_sums[group]);
  }
  embedding_->backward(context, tokens.ids, {dx, scratch.groups, scratch.x});
}

ConstMat Transformer::final_hidden(Context& context, ConstMat x, Mat y, NormStats stats) const {
  if (!final_norm_) return x;
  final_norm_->forward(context, x, y, stats);
  return y;
}

void Transformer::final_hidden_backward(Context& context, ConstMat dy, const NormInput& input, Mat dx,
                                        const RowGroups& groups) {
  if (!final_norm_) return drop_rows(context, dy, {}, dx);
  clear(dx);
  final_norm_->backward(context, dy, input, dx, groups);
}

AttentionOptions Transformer::attention_options(int64_t index) const {
  AttentionOptions options;
  options.bias = position_->bias(index);
  options.rotation = position_->rotation();
  options.scale = static_cast<float>(config_.score_scale);
  options.epsilon = static_cast<float>(config_.attention_epsilon);
  return options;
}

double Transformer::flops_per_token(int64_t length) const {
  int64_t sum = embedding_->multiply_adds() + output_->multiply_adds();
  for (const Layer& layer : layers_) sum += layer.multiply_adds(length);
  return 2.0 * static_cast<double>(sum);
}

double training_flops_per_token(const Transformer& model, int64_t length) { return 3 * model.flops_per_token(length); }

}  // namespace longshot
