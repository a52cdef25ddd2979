#include "model/training.h"

#include "base/rng.h"

namespace longshot {
namespace {

constexpr uint64_t kEmbeddingPlace = 0xe;
constexpr uint64_t kOutputPlace = uint64_t{1} << 32;  // layers count from 1

}  // namespace

TrainingPass::TrainingPass(Context& context, Transformer& model, Config config)
    : TrainingPass(context, model, config, Unallocated{}) {
  memory_ = Workspace([this](Layout& at) { layout(at); });
}

size_t TrainingPass::predict_bytes(Context& context, Transformer& model, Config config) {
  TrainingPass pass(context, model, config, Unallocated{});
  return Workspace::measure([&](Layout& at) { pass.layout(at); });
}

TrainingPass::TrainingPass(Context& context, Transformer& model, Config config, Unallocated)
    : context_(context), model_(model), config_(config) {
  const ModelConfig& c = model.config();
  shape_ = c.attention_shape(config.sequences, config.length);
  position_.assign(static_cast<size_t>(config.sequences), 0);
  const auto layers = static_cast<size_t>(c.layers);
  streams_.resize(layers + 1);
  saved_.resize(config.recompute ? 1 : layers);
  model_.prepare_positions(0, config.length);
}

void TrainingPass::layout(Layout& at) {
  const ModelConfig& c = model_.config();
  const int64_t rows = config_.sequences * config_.length;
  for (Mat& stream : streams_) stream = at.mat(rows, c.dim);
  for (LayerActivations& a : saved_) a.layout(at, c, shape_);
  const DistanceBias bias = model_.attention_options(0).bias;
  const int64_t distances = bias.kind == DistanceBias::Kind::kTable ? bias.table.cols : config_.length;
  scratch_.layout(at, c, shape_, {.training = true, .bias_columns = bias.wants_gradient ? distances : 0});
  store_.layout(at, {shape_.sequences, shape_.stored_heads(), c.head_dim(), config_.length});
  final_ = at.mat(rows, c.dim);
  d_final_ = at.mat(rows, c.dim);
  dx_ = at.mat(rows, c.dim);
  stats_ = {at.array<float>(rows), at.array<float>(rows)};
  losses_ = at.array<float>(rows);
  output_scratch_ = at.array<float>(model_.output().scratch_floats(rows));
}

LayerPass TrainingPass::layer_pass(int64_t index, const TrainingBatch& batch, uint64_t dropout_key) {
  LayerPass pass{.shape = shape_,
                 .attention = model_.attention_options(index),
                 .store = &store_,
                 .position = position_,
                 .step = config_.length,
                 .training = true,
                 .dropout_key = mix64(dropout_key ^ static_cast<uint64_t>(index + 1))};
  if (!batch.first_key.empty()) {
    pass.attention.visible.first = batch.first_key.data();
    pass.attention.visible.stride = batch.length;
  }
  return pass;
}

double TrainingPass::run(const TrainingBatch& batch, float scale, uint64_t dropout_key) {
  const ModelConfig& c = model_.config();
  const auto layers = static_cast<size_t>(c.layers);
  const auto saved = [&](size_t i) -> LayerActivations& {
    LayerActivations& a = saved_[config_.recompute ? 0 : i];
    a.input = streams_[i];
    a.output = streams_[i + 1];
    return a;
  };
  const Dropout embed_drop{.rate = static_cast<float>(c.embedding_dropout),
                           .key = mix64(dropout_key ^ kEmbeddingPlace)};
  const auto drop_embedding = [&](Mat x) {
    if (embed_drop.rate > 0) drop_rows(context_, x, embed_drop, x);
  };

  model_.prepare_positions(batch.length);
  const Transformer::Tokens tokens{batch.inputs, batch.length, position_};
  model_.embed(context_, tokens, streams_[0], scratch_.stats);
  drop_embedding(streams_[0]);
  for (size_t i = 0; i < layers; ++i) {
    model_.layers()[i].forward(context_, layer_pass(static_cast<int64_t>(i), batch, dropout_key), saved(i), scratch_);
  }
  const ConstMat hidden = model_.final_hidden(context_, streams_[layers], final_, stats_);
  model_.output().loss_and_gradient(context_, {hidden, batch.targets, output_scratch_, losses_},
                                    {scale, d_final_, mix64(dropout_key ^ kOutputPlace)});

  model_.final_hidden_backward(context_, d_final_, streams_[layers], stats_, dx_);
  for (size_t i = layers; i-- > 0;) {
    const LayerPass pass = layer_pass(static_cast<int64_t>(i), batch, dropout_key);
    LayerActivations& a = saved(i);
    if (config_.recompute && i + 1 < layers) model_.layers()[i].forward(context_, pass, a, scratch_);
    model_.layers()[i].backward(context_, pass, a, scratch_, dx_);
    if (pass.attention.bias.wants_gradient) model_.position().bias_backward(static_cast<int64_t>(i), scratch_.d_bias);
  }
  drop_embedding(dx_);
  model_.embed_backward(context_, tokens, dx_, {scratch_.normed, scratch_.branch, scratch_.stats});

  double sum = 0;
  for (const float loss : losses_) sum += loss;
  return sum;
}

}  // namespace longshot
