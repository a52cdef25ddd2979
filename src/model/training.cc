#include "model/training.h"

#include <array>
#include <cassert>

#include "base/rng.h"
#include "kernels/update.h"

namespace longshot {
namespace {

constexpr uint64_t kEmbeddingPlace = 0xe;
constexpr uint64_t kOutputPlace = uint64_t{1} << 32;  // layers count from 1

std::vector<RowGroup> in_rows(const RowGroups& sequences, int64_t length) {
  std::vector<RowGroup> rows;
  for (const RowGroup& g : sequences.groups) rows.push_back({g.end * length, g.merges});
  return rows;
}

}  // namespace

TrainingPass::TrainingPass(Context& context, Transformer& model, Config config)
    : TrainingPass(context, model, std::move(config), Unallocated{}) {
  memory_ = Workspace([this](Layout& at) { layout(at); });
}

size_t TrainingPass::predict_bytes(Context& context, Transformer& model, Config config) {
  TrainingPass pass(context, model, std::move(config), Unallocated{});
  return Workspace::measure([&](Layout& at) { pass.layout(at); });
}

TrainingPass::TrainingPass(Context& context, Transformer& model, Config config, Unallocated)
    : context_(context), model_(model), config_(std::move(config)), precision_(context.precision()) {
  const ModelConfig& c = model.config();
  shape_ = c.attention_shape(config_.sequences, config_.length);
  position_.assign(static_cast<size_t>(config_.sequences), 0);
  const auto layers = static_cast<size_t>(c.layers);
  streams_.resize(layers + 1);
  saved_.resize(config_.recompute ? 1 : layers);
  size_t groups = 1;
  for (const RowGroups& g : config_.groups) groups = std::max(groups, g.groups.size());
  row_groups_.reserve(groups);
  position_sums_.assign(groups, std::vector<std::span<float>>(model.position_tensors().size()));
  model_.prepare_positions(0, config_.length);
}

void TrainingPass::layout(Layout& at) {
  const ModelConfig& c = model_.config();
  const int64_t rows = config_.sequences * config_.length;
  const bool one_stream = precision_ == Precision::kBf16 && !config_.recompute;
  for (Mat& stream : streams_) stream = &stream == &streams_[0] || !one_stream ? at.mat(rows, c.dim) : streams_[0];
  for (LayerActivations& a : saved_) a.layout(at, c, shape_, precision_);
  const DistanceBias bias = model_.attention_options(0).bias;
  const int64_t distances = bias.kind == DistanceBias::Kind::kTable ? bias.table.cols : config_.length;
  scratch_.layout(at, c, shape_,
                  {.training = true,
                   .bias_columns = bias.wants_gradient ? distances : 0,
                   .groups = static_cast<int64_t>(position_sums_.size()),
                   .stored = precision_});
  store_.layout(at, {shape_.sequences, shape_.stored_heads(), c.head_dim(), config_.length});
  final_ = at.mat(rows, c.dim);
  d_final_ = at.mat(rows, c.dim);
  dx_ = at.mat(rows, c.dim);
  stats_ = {at.array<float>(rows), at.array<float>(rows)};
  losses_ = at.array<float>(rows);
  output_scratch_ = at.array<float>(model_.output().scratch_floats(rows));
  int64_t room = 0;
  for (const RowGroups& groups : config_.groups) {
    const std::vector<RowGroup> of_rows = in_rows(groups, config_.length);
    room = std::max(room, model_.output().gradient_room({of_rows, groups.begin * config_.length}, rows));
  }
  output_room_ = at.array<float>(room);
  for (auto& sums : position_sums_) {
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = at.array<float>(model_.parameters().tensors()[model_.position_tensors()[i]].size);
    }
  }
}

LayerPass TrainingPass::layer_pass(int64_t index, const TrainingBatch& batch, uint64_t dropout_key) {
  AttentionShape shape = shape_;
  shape.sequences = batch.sequences, shape.together = batch.together;
  LayerPass pass{.shape = shape,
                 .attention = model_.attention_options(index),
                 .store = &store_,
                 .position = part<const int64_t>(position_, 0, batch.sequences),
                 .step = config_.length,
                 .training = true,
                 .dropout_key = mix64(dropout_key ^ static_cast<uint64_t>(index + 1)),
                 .first_sequence = batch.first_sequence,
                 .groups = groups_};
  if (!batch.first_key.empty()) {
    pass.attention.visible.first = batch.first_key.data();
    pass.attention.visible.stride = batch.length;
  }
  return pass;
}

// Without groups all sequences are one.
void TrainingPass::set_groups(const TrainingBatch& batch) {
  row_groups_.clear();
  for (const RowGroup& g : batch.groups.groups) row_groups_.push_back({g.end * batch.length, g.merges});
  if (row_groups_.empty()) row_groups_.push_back({batch.sequences * batch.length, 0});
  groups_ = {row_groups_, batch.groups.begin * batch.length};
  assert(row_groups_.size() <= position_sums_.size());
}

LayerActivations TrainingPass::saved(size_t layer, int64_t rows) const {
  LayerActivations a = saved_[config_.recompute ? 0 : layer];
  a.input = streams_[layer];
  a.output = streams_[layer + 1];
  if (precision_ == Precision::kF32) a.kept_input = a.input;
  return a.first_rows(rows);
}

Dropout TrainingPass::embedding_dropout(const TrainingBatch& batch, uint64_t dropout_key) const {
  return {.rate = static_cast<float>(model_.config().embedding_dropout),
          .key = mix64(dropout_key ^ kEmbeddingPlace),
          .first_row = batch.first_sequence * batch.length};
}

double TrainingPass::run(const TrainingBatch& batch, float scale, uint64_t dropout_key, const Events& events) {
  assert(batch.length == config_.length && batch.sequences <= config_.sequences);
  const PrecisionScope precision(context_, precision_);
  set_groups(batch);
  events.uses(model_.gradients_of_layer(0));
  model_.prepare_positions(batch.length);
  const double sum = forward(batch, scale, dropout_key, events);
  backward(batch, dropout_key, events);
  return sum;
}

// The gradient of the output with it.
double TrainingPass::forward(const TrainingBatch& batch, float scale, uint64_t dropout_key, const Events& events) {
  const auto layers = static_cast<size_t>(model_.config().layers);
  const int64_t rows = batch.sequences * batch.length;
  const auto cut = [rows](Mat m) { return m.rows_from(0, rows); };
  LayerScratch scratch = scratch_.first_rows(rows);
  const Transformer::Tokens tokens{batch.inputs, batch.length, position_};
  const Dropout drop = embedding_dropout(batch, dropout_key);
  model_.embed(context_, tokens, cut(streams_[0]), scratch.stats);
  if (drop.rate > 0) drop_rows(context_, cut(streams_[0]), drop, cut(streams_[0]));
  for (size_t i = 0; i < layers; ++i) {
    const auto index = static_cast<int64_t>(i);
    LayerActivations a = saved(i, rows);
    events.uses(i + 1 < layers ? model_.gradients_of_layer(index + 1) : model_.gradients_of_final_norm());
    model_.layers()[i].forward(context_, layer_pass(index, batch, dropout_key), a, scratch);
  }
  events.uses(model_.parameters().end());
  const ConstMat hidden = model_.final_hidden(context_, cut(streams_[layers]), cut(final_), stats_);
  const std::span<float> losses = part(losses_, 0, rows);
  model_.output().loss_and_gradient(context_, {hidden, batch.targets, output_scratch_, losses},
                                    {.scale = scale,
                                     .d_hidden = cut(d_final_),
                                     .dropout_key = mix64(dropout_key ^ kOutputPlace),
                                     .first_row = batch.first_sequence * batch.length,
                                     .groups = groups_,
                                     .room = output_room_});
  return sum_of_losses();
}

void TrainingPass::backward(const TrainingBatch& batch, uint64_t dropout_key, const Events& events) {
  const auto layers = static_cast<size_t>(model_.config().layers);
  const int64_t rows = batch.sequences * batch.length;
  const auto cut = [rows](Mat m) { return m.rows_from(0, rows); };
  LayerScratch scratch = scratch_.first_rows(rows);
  const Mat dx = cut(dx_);
  events.complete(model_.gradients_of_output());
  model_.final_hidden_backward(context_, cut(d_final_), {cut(streams_[layers]), stats_}, dx, groups_);
  events.complete(model_.gradients_of_final_norm());
  for (auto& sums : position_sums_) {
    for (const std::span<float> sum : sums) std::ranges::fill(sum, 0.0f);
  }
  for (size_t i = layers; i-- > 0;) {
    const auto index = static_cast<int64_t>(i);
    const LayerPass pass = layer_pass(index, batch, dropout_key);
    LayerActivations a = saved(i, rows);
    if (config_.recompute && i + 1 < layers) model_.layers()[i].forward(context_, pass, a, scratch);
    model_.layers()[i].backward(context_, pass, a, scratch, dx);
    if (pass.attention.bias.wants_gradient) bias_backward(index);
    events.complete(model_.gradients_of_layer(index));
  }
  const Dropout drop = embedding_dropout(batch, dropout_key);
  if (drop.rate > 0) drop_rows(context_, dx, drop, dx);
  model_.embed_backward(context_, {batch.inputs, batch.length, position_}, dx,
                        {scratch.d_branch, scratch.branch, scratch.stats, groups_, position_sums_});
  add_position_sums();
  events.complete(0);
}

void TrainingPass::bias_backward(int64_t layer) {
  const int64_t heads = shape_.heads;
  for (size_t g = 0; g < row_groups_.size(); ++g) {
    const ConstMat d_bias = scratch_.d_bias.rows_from(static_cast<int64_t>(g) * heads, heads);
    model_.position().bias_backward(layer, d_bias, position_sums_[g]);
  }
}

// Layers may share a tensor: the groups' sums are added when all layers have added to them.
void TrainingPass::add_position_sums() {
  Parameters& parameters = model_.parameters();
  for (size_t t = 0; t < model_.position_tensors().size(); ++t) {
    const auto sum = [&](size_t group) { return position_sums_[group][t]; };
    size_t next = 0;
    const auto leaf = [&](int64_t, int64_t, int i) { of_sum_[static_cast<size_t>(i)] = next++; };
    const auto merge = [&](int into, int from) {
      const std::span<float> other = sum(of_sum_[static_cast<size_t>(from)]);
      add_floats(other.data(), sum(of_sum_[static_cast<size_t>(into)]).data(), std::ssize(other));
    };
    sum_by_groups(groups_, leaf, merge);
    add_floats(sum(0).data(), parameters.grad(model_.position_tensors()[t]).data(), std::ssize(sum(0)));
  }
}

double TrainingPass::sum_of_losses() const {
  std::array<double, kMostDepth> sums{};
  const auto leaf = [&](int64_t first, int64_t count, int i) {
    double& sum = sums[static_cast<size_t>(i)] = 0;
    for (const float loss : part(losses_, first, count)) sum += loss;
  };
  sum_by_groups(groups_, leaf,
                [&](int into, int from) { sums[static_cast<size_t>(into)] += sums[static_cast<size_t>(from)]; });
  return sums[0];
}

}  // namespace longshot
