#include "model/inference.h"

#include <algorithm>

#include "base/error.h"
#include "model/norm_bounds.h"

namespace longshot {

Inference::Inference(Context& context, Transformer& model, Config config, const Watch& watch)
    : context_(context), model_(model), config_(config) {
  check_config();
  // Rows of several sequences are not contiguous after a cut, so only a single one is cut into chunks.
  chunk_ = config.sequences == 1 ? std::min(config.tokens, kChunkTokens) : config.tokens;
  past_.assign(static_cast<size_t>(config.sequences), config.first);
  stores_.resize(config.capacity > 0 ? static_cast<size_t>(model.config().layers) : 1);
  model_.require_length(std::max(config.capacity, config.first + config.tokens));
  if (config.sinks > 0) sinks_.resize(stores_.size(), {.store = {}, .count = config.sinks, .window = config.window});
  memory_ = Workspace([this](Layout& at) { layout(at); });
  if (config.forget != Forget::kNothing) forget_by_bound(watch);
  if (config.sinks > 0) keep_sinks();
}

void Inference::check_config() const {
  require_usage(config_.sequences > 0 && config_.tokens > 0, "inference needs at least one sequence and one token");
  const bool forgets = config_.forget != Forget::kNothing;
  require_usage(config_.capacity < kEndless || config_.window > 0 || forgets,
                "an endless stream needs a window, or a cache that forgets");
  const auto kind = model_.attention_options(0).bias.kind;
  require_usage(!forgets || (config_.capacity > 0 && config_.window == 0 && kind == DistanceBias::Kind::kLinear),
                "keys are forgotten by a bound where the bias is linear in the distance, with a cache and no window");
  require_usage(
      config_.sinks == 0 || (config_.sinks > 0 && config_.sinks <= config_.window && config_.capacity > 0 &&
                             config_.sinks <= kKeyTile && kind != DistanceBias::Kind::kLinear),
      "{} sinks: at most {}, and no more than the window of {} has tokens; with a cache, and not where the bias "
      "is linear in the distance",
      config_.sinks, kKeyTile, config_.window);
  require(config_.first == 0 || config_.sharing, "a stretch from position {} on lacks the keys before", config_.first);
  require(!config_.sharing || (config_.sequences == 1 && config_.capacity == 0 && config_.window == 0 &&
                               config_.first % kChunkTokens == 0),
          "a stretch is of one sequence, without cache and window, and begins at a multiple of {}, not at {}",
          kChunkTokens, config_.first);
}

// Rings begin with what a model's queries usually need; see Forgetting.
void Inference::forget_by_bound(const Watch& watch) {
  const ModelConfig& c = model_.config();
  const bool bf16 = context_.precision() == Precision::kBf16, strict = config_.forget == Forget::kByWeights;
  require_usage(!strict || !bf16, "a bound from the weights holds for products in f32, not in bf16");
  const auto bounds =
      strict ? norm_bounds(context_, model_, watch) : std::vector<std::vector<NormBounds>>(stores_.size());
  model_.prepare_positions(0, 1);
  for (size_t i = 0; i < stores_.size(); ++i) {
    const AttentionOptions options = model_.attention_options(static_cast<int64_t>(i));
    require_usage(
        !options.bias.query_slopes.data,
        "slopes that flatten as a text goes on let no key be dropped for good: an endless stream cannot have them");
    forgetting_.emplace_back(Forgetting::Config{.shape = c.attention_shape(config_.sequences, chunk_),
                                                .slopes = options.bias.slopes,
                                                .epsilon = options.epsilon,
                                                .bf16 = bf16,
                                                .bounds = bounds[i]},
                             stores_[i]);
  }
}

void Inference::keep_sinks() {
  const int64_t position = std::min(sinks_.front().seen_from(), model_.position().max_length() - 1);
  model_.prepare_positions(position, position + 1);
  const Rotation at_end = model_.position().rotation();
  const int64_t pairs = at_end.cos.cols;
  if (pairs == 0) return;
  const int64_t row = position - at_end.first;
  sink_cos_.assign(at_end.cos.row(row), at_end.cos.row(row) + pairs);
  sink_sin_.assign(at_end.sin.row(row), at_end.sin.row(row) + pairs);
  for (SinkKeys& sinks : sinks_) {
    sinks.rotation = {.cos = {sink_cos_.data(), 1, pairs},
                      .sin = {sink_sin_.data(), 1, pairs},
                      .interleaved = at_end.interleaved,
                      .fixed = true};
  }
}

void Inference::forget(int64_t sequence) {
  past_[static_cast<size_t>(sequence)] = 0;
  for (Forgetting& f : forgetting_) f.restart(sequence);
}

void Inference::forget() {
  for (int64_t b = 0; b < config_.sequences; ++b) forget(b);
}

ForgettingSummary Inference::forgotten() const {
  ForgettingSummary all;
  for (size_t i = 0; i < forgetting_.size(); ++i) all.add(forgetting_[i].summary(stores_[i]));
  if (all.dropped > 0) all.left_out += model_.config().attention_epsilon;
  return all;
}

void Inference::layout(Layout& at) {
  const ModelConfig& c = model_.config();
  const int64_t B = config_.sequences, rows = config_.rows > 0 ? config_.rows : B * config_.tokens;
  // Room for `rows` however they are divided among sequences.
  const AttentionShape shape = c.attention_shape(B, std::min(chunk_, (rows + B - 1) / B));
  x_ = at.mat(rows, c.dim);
  if (c.final_norm) final_ = at.mat(rows, c.dim);
  activations_.layout(at, c, shape);
  const bool forgets = config_.forget != Forget::kNothing;
  scratch_.layout(at, c, shape, {.forgets = forgets, .sinks = config_.sinks > 0});
  // The first token of a chunk still needs its window when the last one's key has been stored, and whole tiles go.
  const int64_t all = std::max(config_.capacity, config_.tokens);
  const int64_t needed = config_.window > 0 ? config_.window + chunk_ + kKeyTile : all;
  const KeyStore::Size size{config_.sequences, shape.stored_heads(), c.head_dim(), forgets ? 0 : std::min(all, needed)};
  for (KeyStore& store : stores_) store.layout(at, size);
  for (SinkKeys& sinks : sinks_) sinks.store.layout(at, {size.sequences, size.heads, size.head_dim, config_.sinks});
  stats_ = {at.array<float>(rows), at.array<float>(rows)};
  output_scratch_ = at.array<float>(model_.output().scratch_floats(rows));
}

// Checks the call and finds where its sequences stand.
void Inference::begin(const Tokens& tokens) {
  const size_t B = tokens.sequences.empty() ? past_.size() : tokens.sequences.size();
  const auto rows = static_cast<int64_t>(B) * tokens.length;
  require(tokens.length <= config_.tokens && static_cast<int64_t>(tokens.inputs.size()) == rows &&
              (config_.rows == 0 || rows <= config_.rows),
          "inference was set up for {} x {} tokens, not {} x {}", config_.sequences, config_.tokens, B, tokens.length);
  require(tokens.counts.empty() || tokens.counts.size() == B, "{} counts of tokens for {} sequences",
          tokens.counts.size(), B);
  require(tokens.sequences.empty() || (forgetting_.empty() && sinks_.empty()),
          "a cache that forgets keys or keeps sinks takes all its sequences at once");
  start_.clear();
  for (size_t b = 0; b < B; ++b) {
    require(place(tokens, b) < past_.size(), "there is no sequence {} of {}", place(tokens, b), past_.size());
    start_.push_back(past_[place(tokens, b)]);
  }
  for (KeyStore& store : stores_) store.chosen = tokens.sequences;
  const int64_t past = *std::max_element(start_.begin(), start_.end());
  require(config_.capacity == 0 || past + tokens.length <= config_.capacity, "the cache holds {} tokens, {} are wanted",
          config_.capacity, past + tokens.length);
}

// Fills the front of x_ with the tokens' vectors. Returns the rows from one sequence to the next: where sequences
// overlap and a vector does not depend on its position, they share it.
int64_t Inference::embed(const Tokens& tokens) {
  const int64_t length = tokens.length;
  if (tokens.shift == 0 || model_.position().adds_to_input()) {
    const auto rows = static_cast<int64_t>(tokens.inputs.size());
    model_.embed(context_, {tokens.inputs, length, start_}, x_.rows_from(0, rows), stats_);
    return length;
  }
  distinct_.assign(tokens.inputs.begin(), tokens.inputs.begin() + length);
  for (int64_t b = 1; b < static_cast<int64_t>(start_.size()); ++b) {
    const auto end = tokens.inputs.begin() + (b + 1) * length;
    distinct_.insert(distinct_.end(), end - tokens.shift, end);
  }
  const auto count = static_cast<int64_t>(distinct_.size());
  model_.embed(context_, {distinct_, count, start_}, x_.rows_from(0, count), stats_);
  return tokens.shift;
}

std::span<const VisitedTiles> Inference::run_chunk(const Tokens& tokens, const Chunk& chunk, Mat input, Mat output) {
  const ModelConfig& c = model_.config();
  const auto B = static_cast<int64_t>(start_.size());
  position_ = counts_ = start_;
  for (size_t b = 0; b < start_.size(); ++b) {
    const int64_t count = tokens.counts.empty() ? tokens.length : tokens.counts[b];
    position_[b] += chunk.first;
    counts_[b] = std::clamp<int64_t>(count - chunk.first, 0, chunk.count);
  }
  const auto of_layer = [&](auto& all) { return all.empty() ? nullptr : &all[static_cast<size_t>(chunk.layer)]; };
  LayerPass pass{.shape = c.attention_shape(B, chunk.count),
                 .attention = model_.attention_options(chunk.layer),
                 .store = &stores_[static_cast<size_t>(stores_.size() > 1 ? chunk.layer : 0)],
                 .position = position_,
                 .counts = counts_,
                 .forgetting = of_layer(forgetting_),
                 .sinks = of_layer(sinks_),
                 .skip = chunk.skip,
                 .step = chunk.step,
                 .keys_stored = chunk.keys_stored};
  VisibleKeys& visible = pass.attention.visible;
  visible.window = config_.window;
  if (!tokens.first_key.empty()) visible.first = tokens.first_key.data() + chunk.first, visible.stride = tokens.length;
  LayerActivations a = activations_;
  a.input = input;
  a.qkv = a.qkv.rows_from(0, input.rows);
  a.output = output;
  AttentionShape wanted = pass.shape;
  wanted.queries = pass.wanted();
  a.visited = a.visited.first(static_cast<size_t>(wanted.sequences * wanted.heads * wanted.query_tiles()));
  model_.layers()[static_cast<size_t>(chunk.layer)].forward(context_, pass, a, scratch_);
  if (!lacks_keys(a.visited)) {
    const TileCount tiles = count_tiles(a.visited);
    visited_.seen += tiles.seen;
    visited_.all += tiles.all;
  }
  return a.visited;
}

int64_t Inference::run_shared(const Tokens& tokens, int64_t layer, int64_t unwanted) {
  const int64_t length = tokens.length;
  const auto chunk_of = [&](int64_t pass) {
    const int64_t first = pass * chunk_, count = std::min(chunk_, length - first);
    return Chunk{.layer = layer, .first = first, .count = count, .skip = count, .step = count};
  };
  const auto look = [&](int64_t done) {
    tokens.watch.at(static_cast<double>(layer * length + done) / static_cast<double>(model_.config().layers * length));
  };
  const auto store_keys = [&](int64_t pass) {
    const Chunk chunk = chunk_of(pass);
    look(0);
    run_chunk(tokens, chunk, x_.rows_from(chunk.first, chunk.count), x_.rows_from(0, 0));
  };
  const auto attend = [&](int64_t pass) -> std::span<const VisitedTiles> {
    Chunk chunk = chunk_of(pass);
    look(chunk.first);
    chunk.skip = std::clamp<int64_t>(unwanted - chunk.first, 0, chunk.count), chunk.keys_stored = true;
    if (chunk.skip == chunk.count) return {};
    const Mat output = x_.rows_from(std::max<int64_t>(chunk.first - unwanted, 0), chunk.count - chunk.skip);
    return run_chunk(tokens, chunk, x_.rows_from(chunk.first, chunk.count), output);
  };
  config_.sharing->run({stores_[0], model_.config().heads, (length + chunk_ - 1) / chunk_, store_keys, attend});
  return length - unwanted;
}

ConstMat Inference::run(const Tokens& tokens, int64_t wanted_from) {
  begin(tokens);
  const int64_t length = tokens.length, layers = model_.config().layers;
  const auto B = static_cast<int64_t>(start_.size());
  const auto [least, most] = std::minmax_element(start_.begin(), start_.end());
  model_.prepare_positions(*least, *most + length);
  int64_t step = embed(tokens), kept = 0;  // rows of the result at the front of x_
  visited_ = {};
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (config_.sharing) {
      kept = run_shared(tokens, layer, layer + 1 == layers ? wanted_from : 0);
      continue;
    }
    kept = 0;
    for (int64_t first = 0; first < length; first += chunk_) {
      const int64_t count = std::min(chunk_, length - first);
      const int64_t skip = layer + 1 == layers ? std::clamp<int64_t>(wanted_from - first, 0, count) : 0;
      const int64_t in_step = std::min(step, count), rows = count + (B - 1) * in_step, out_rows = B * (count - skip);
      run_chunk(tokens, {layer, first, count, skip, in_step}, x_.rows_from(first, rows), x_.rows_from(kept, out_rows));
      kept += out_rows;
      tokens.watch.at(static_cast<double>(layer * length + first + count) / static_cast<double>(layers * length));
    }
    step = length;  // a block's output has all rows of all sequences
  }
  for (size_t b = 0; b < start_.size() && config_.capacity > 0; ++b) {
    past_[place(tokens, b)] += tokens.counts.empty() ? length : tokens.counts[b];
  }
  return model_.final_hidden(context_, x_.rows_from(0, kept), final_.data ? final_.rows_from(0, kept) : final_, stats_);
}

void Inference::score(const Tokens& tokens, std::span<const int32_t> targets, int64_t scored_from,
                      std::span<float> losses) {
  const ConstMat hidden = run(tokens, scored_from);
  if (hidden.rows == 0) return;
  model_.output().loss(context_, {hidden, targets, output_scratch_, losses});
}

void Inference::log_probabilities(const Tokens& tokens, int64_t wanted_from, Mat out) {
  model_.output().log_probabilities(context_, run(tokens, wanted_from), out);
}

}  // namespace longshot
