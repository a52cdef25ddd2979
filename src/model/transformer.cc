#include "model/transformer.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "model/adaptive.h"
#include "model/rows.h"

namespace longshot {
namespace {

// The options of the model's own method, without the method's name in front.
std::map<std::string, std::string> own_options(const ModelConfig& config) {
  std::map<std::string, std::string> options;
  const std::string prefix = config.position + "-";
  for (const auto& [name, value] : config.position_options) {
    if (name.starts_with(prefix)) options[name.substr(prefix.size())] = value;
  }
  return options;
}

}  // namespace

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
  position_ = make_position(config_.position, {.layers = config_.layers,
                                               .heads = config_.heads,
                                               .head_dim = config_.head_dim(),
                                               .train_length = config_.length,
                                               .options = own_options(config_)});
  std::vector<ParameterId> position_ids;
  for (const PositionTensor& t : position_->tensors()) {
    position_ids.push_back(parameters_.add("position." + t.name, t.shape, false, t.init));
  }
  layers_.reserve(static_cast<size_t>(config_.layers));
  for (int64_t i = 0; i < config_.layers; ++i) layers_.emplace_back(config_, parameters_, i);
  if (config_.final_norm) final_norm_.emplace(parameters_, config_, "final_norm");
  if (config_.is_adaptive()) {
    output_ = std::make_unique<AdaptiveSoftmax>(config_, parameters_, bands);
  } else {
    const double deviation = 1 / std::sqrt(static_cast<double>(config_.dim));
    const ParameterId weight =
        config_.tied ? tied : parameters_.add("output.weight", {config_.vocab, config_.dim}, true, gaussian(deviation));
    output_ = std::make_unique<LinearOutput>(parameters_, weight, config_.vocab);
  }
  parameters_.allocate(with_gradients, memory);

  std::vector<std::span<float>> values, grads;
  for (const ParameterId id : position_ids) {
    values.push_back(parameters_.value(id));
    grads.push_back(parameters_.grad(id));
  }
  position_->bind(values, grads);
}

void Transformer::require_length(int64_t length) const {
  require(length <= position_->max_length(), "position method '{}' is defined up to length {}, not {}",
          config_.position, position_->max_length(), length);
}

void Transformer::prepare_positions(int64_t first, int64_t last) {
  require_length(last);
  position_->prepare(first, last);
}

void Transformer::embed(Context& context, std::span<const int32_t> tokens, int64_t length,
                        std::span<const int64_t> first, Mat x) {
  embedding_->forward(context, tokens, x);
  for (int64_t r = 0; r < x.rows; r += length) {
    position_->add_to_input(x.rows_from(r, length), first[static_cast<size_t>(r / length)]);
  }
}

void Transformer::embed_backward(Context& context, std::span<const int32_t> tokens, int64_t length, ConstMat dx) {
  for (int64_t r = 0; r < dx.rows; r += length) position_->add_to_input_backward(dx.rows_from(r, length), 0);
  embedding_->backward(context, tokens, dx);
}

ConstMat Transformer::final_hidden(Context& context, ConstMat x, Mat y, NormLayer::Stats stats) const {
  if (!final_norm_) return x;
  final_norm_->forward(context, x, y, stats);
  return y;
}

void Transformer::final_hidden_backward(Context& context, ConstMat dy, ConstMat x, NormLayer::Stats stats,
                                        Mat dx) const {
  if (!final_norm_) {
    parallel_rows(context, dy.rows,
                  [&](int64_t r, int64_t n) { drop_rows(dy.rows_from(r, n), {}, dx.rows_from(r, n)); });
    return;
  }
  std::memset(dx.data, 0, sizeof(float) * static_cast<size_t>(dx.rows * dx.cols));
  final_norm_->backward(context, dy, x, stats, dx);
}

AttentionOptions Transformer::attention_options(int64_t index) const {
  AttentionOptions options;
  options.bias = position_->bias(index);
  options.rotation = position_->rotation();
  options.epsilon = static_cast<float>(config_.attention_epsilon);
  return options;
}

double training_flops_per_token(const Transformer& model, int64_t length) {
  double parameters = 0;
  for (const Tensor& t : model.parameters().tensors()) {
    const bool lookup_only = t.name == "embed.weight" && !model.config().tied;
    // Rare words' bands work for the few tokens that fall into them.
    const bool rare = t.name.starts_with("embed.band") && !t.name.starts_with("embed.band0.");
    if (t.decay && !lookup_only && !rare) parameters += static_cast<double>(t.size);
  }
  const ModelConfig& c = model.config();
  return 6 * parameters + 6.0 * static_cast<double>(c.layers * c.dim * length);
}

}  // namespace longshot
