#include "model/inference.h"

#include <algorithm>

#include "base/error.h"

namespace longshot {
namespace {

constexpr int64_t kChunkTokens = 4096;  // of all sequences; enough to feed the products

}  // namespace

Inference::Inference(Context& context, Transformer& model, Config config)
    : context_(context), model_(model), config_(config) {
  require_usage(config.sequences > 0 && config.tokens > 0, "inference needs at least one sequence and one token");
  // Rows of several sequences are not contiguous after a cut, so only a single one is cut into chunks.
  chunk_ = config.sequences == 1 ? std::min(config.tokens, kChunkTokens) : config.tokens;
  stores_.resize(config.capacity > 0 ? static_cast<size_t>(model.config().layers) : 1);
  model_.prepare_positions(std::max(config.capacity, config.tokens));
  memory_ = Workspace([this](Layout& at) { layout(at); });
}

void Inference::layout(Layout& at) {
  const ModelConfig& c = model_.config();
  const int64_t rows = config_.sequences * config_.tokens;
  const AttentionShape shape{
      .sequences = config_.sequences, .queries = chunk_, .heads = c.heads, .head_dim = c.head_dim()};
  x_ = at.mat(rows, c.dim);
  if (c.final_norm) final_ = at.mat(rows, c.dim);
  activations_.layout(at, c, shape);
  scratch_.layout(at, context_, c, shape, {});
  for (KeyStore& store : stores_) {
    store.layout(at, config_.sequences * c.heads, std::max(config_.capacity, config_.tokens), c.head_dim());
  }
  mean_ = at.array<float>(rows);
  rstd_ = at.array<float>(rows);
  output_scratch_ = at.array<float>(model_.output().scratch_floats(rows));
}

ConstMat Inference::run(const Tokens& tokens, int64_t wanted_from) {
  const ModelConfig& c = model_.config();
  const int64_t length = tokens.length, rows = config_.sequences * length;
  require(length <= config_.tokens && static_cast<int64_t>(tokens.inputs.size()) == rows,
          "inference was set up for {} x {} tokens, not {} x {}", config_.sequences, config_.tokens, config_.sequences,
          length);
  require(config_.capacity == 0 || past_ + length <= config_.capacity, "the cache holds {} tokens, {} are wanted",
          config_.capacity, past_ + length);
  model_.prepare_positions(std::max(config_.capacity, config_.tokens));
  model_.embed(context_, tokens.inputs, length, past_, x_.rows_from(0, rows));
  visited_ = {};
  int64_t kept = rows;  // rows of the result at the front of x_
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    const bool last = layer + 1 == c.layers;
    KeyStore& store = stores_[static_cast<size_t>(stores_.size() > 1 ? layer : 0)];
    if (last) kept = 0;
    for (int64_t first = 0; first < length; first += chunk_) {
      const int64_t count = std::min(chunk_, length - first);
      LayerPass pass{.shape = {.sequences = config_.sequences,
                               .queries = count,
                               .heads = c.heads,
                               .head_dim = c.head_dim(),
                               .past = past_ + first,
                               .skip = last ? std::clamp<int64_t>(wanted_from - first, 0, count) : 0},
                     .attention = model_.attention_options(layer),
                     .store = &store,
                     .shift = layer == 0 && !model_.position().adds_to_input() ? tokens.shift : 0};
      if (!tokens.first_key.empty()) pass.attention.first_key = tokens.first_key.data() + first;
      LayerActivations a = activations_;
      const int64_t n = config_.sequences * count, out = last ? kept : first * config_.sequences;
      const int64_t out_rows = config_.sequences * pass.shape.wanted();
      a.input = x_.rows_from(first * config_.sequences, n);
      a.qkv = a.qkv.rows_from(0, n);
      a.output = x_.rows_from(out, out_rows);
      model_.layers()[static_cast<size_t>(layer)].forward(context_, pass, a, scratch_);
      if (last) kept += out_rows;
      const TileCount tiles = count_tiles(pass.shape, {a.visited});
      visited_.seen += tiles.seen;
      visited_.all += tiles.all;
    }
  }
  if (config_.capacity > 0) past_ += length;
  return model_.final_hidden(context_, x_.rows_from(0, kept), final_.data ? final_.rows_from(0, kept) : final_,
                             {mean_, rstd_});
}

void Inference::score(const Tokens& tokens, std::span<const int32_t> targets, int64_t scored_from,
                      std::span<float> losses) {
  const ConstMat hidden = run(tokens, scored_from);
  model_.output().loss(context_, hidden, targets, output_scratch_, losses);
}

void Inference::log_probabilities(const Tokens& tokens, int64_t wanted_from, Mat out) {
  model_.output().log_probabilities(context_, run(tokens, wanted_from), out);
}

}  // namespace longshot
