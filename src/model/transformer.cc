#include "model/transformer.h"

#include <cmath>

#include "base/error.h"
#include "kernels/gather.h"
#include "model/adaptive.h"

namespace longshot {

Transformer::Transformer(ModelConfig config, bool with_gradients, Memory memory) : config_(std::move(config)) {
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
  for (int64_t i = 0; i < config_.layers; ++i) layers_.emplace_back(config_, parameters_, i);
  if (config_.final_norm) final_norm_.emplace(parameters_, config_, "final_norm", initial_final_gains(config_));
  if (config_.is_adaptive()) {
    output_ = std::make_unique<AdaptiveSoftmax>(config_, parameters_, bands);
  } else {
    const ParameterId weight = config_.tied ? tied
                                            : parameters_.add("output.weight", {config_.vocab, config_.dim}, true,
                                                              gaussian(initial_output(config_)));
    output_ = std::make_unique<LinearOutput>(parameters_, weight, config_.vocab);
  }
  parameters_.allocate(with_gradients, memory);
  bind_position();
}

void Transformer::bind_position() {
  std::vector<std::span<float>> values, grads;
  for (const ParameterId id : position_ids_) {
    values.push_back(parameters_.value(id));
    grads.push_back(parameters_.grad(id));
  }
  position_->bind(values, grads);
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
    embedding_norm_->backward(context, dx, scratch.x, scratch.stats, scratch.dx);
    dx = scratch.dx;
  }
  for (int64_t r = 0; r < dx.rows; r += tokens.length) {
    position_->add_to_input_backward(dx.rows_from(r, tokens.length),
                                     tokens.first[static_cast<size_t>(r / tokens.length)]);
  }
  embedding_->backward(context, tokens.ids, dx);
}

ConstMat Transformer::final_hidden(Context& context, ConstMat x, Mat y, NormStats stats) const {
  if (!final_norm_) return x;
  final_norm_->forward(context, x, y, stats);
  return y;
}

void Transformer::final_hidden_backward(Context& context, ConstMat dy, ConstMat x, NormStats stats, Mat dx) {
  if (!final_norm_) return drop_rows(context, dy, {}, dx);
  clear(dx);
  final_norm_->backward(context, dy, x, stats, dx);
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
