#include "longshot.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "data/token_set.h"
#include "evaluate/validation.h"
#include "model/inference.h"
#include "run/loaded_model.h"
#include "train/trainer.h"

namespace longshot {

struct Model::State {
  State(LoadedModel model, int threads) : loaded(std::move(model)), context(threads) {}
  LoadedModel loaded;
  Context context;
  const Tokenizer& tokenizer() const {
    require(loaded.tokenizer != nullptr, "{}: no tokenizer travelled with this model", loaded.dir.string());
    return *loaded.tokenizer;
  }
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Model Model::load(const std::string& path, int threads, const Watch& watch) {
  return Model(std::make_unique<State>(load_model(path, watch), threads));
}

int64_t Model::train_length() const { return state_->loaded.info.model.length; }
int64_t Model::vocab_size() const { return state_->loaded.info.model.vocab; }
const std::string& Model::position() const { return state_->loaded.info.model.position; }

std::vector<int32_t> Model::encode(std::string_view text) const { return state_->tokenizer().encode(text); }
std::string Model::decode(std::span<const int32_t> ids) const { return state_->tokenizer().decode(ids); }

namespace {

void check_ids(std::span<const int32_t> ids, int64_t vocab) {
  for (const int32_t id : ids) require(id >= 0 && id < vocab, "id {} is outside the vocabulary of {}", id, vocab);
}

// What the model reads: the start id, then all ids but the last `dropped`.
std::vector<int32_t> shifted(const LoadedModel& loaded, std::span<const int32_t> ids, size_t dropped) {
  std::vector<int32_t> inputs{loaded.tokenizer ? loaded.tokenizer->start_id() : 0};
  inputs.insert(inputs.end(), ids.begin(), ids.end() - static_cast<int64_t>(dropped));
  return inputs;
}

int32_t sample(std::span<const float> log_p, double temperature, double uniform) {
  const auto best = std::max_element(log_p.begin(), log_p.end());
  if (temperature <= 0) return static_cast<int32_t>(best - log_p.begin());
  double sum = 0;
  for (const float l : log_p) sum += std::exp((l - *best) / temperature);
  double rest = uniform * sum;
  for (size_t i = 0; i < log_p.size(); ++i) {
    rest -= std::exp((log_p[i] - *best) / temperature);
    if (rest < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best - log_p.begin());
}

}  // namespace

std::vector<float> Model::score(std::span<const int32_t> ids, const Watch& watch) {
  if (ids.empty()) return {};
  check_ids(ids, vocab_size());
  const std::vector<int32_t> inputs = shifted(state_->loaded, ids, 1);
  const auto length = static_cast<int64_t>(ids.size());
  Inference inference(state_->context, *state_->loaded.model, {.sequences = 1, .tokens = length});
  std::vector<float> losses(ids.size());
  inference.score({.inputs = inputs, .length = length, .first_key = {}, .watch = watch}, ids, 0, losses);
  return losses;
}

std::vector<float> Model::next_log_probabilities(std::span<const int32_t> ids, const Watch& watch) {
  check_ids(ids, vocab_size());
  const std::vector<int32_t> inputs = shifted(state_->loaded, ids, 0);
  const auto length = static_cast<int64_t>(inputs.size());
  Inference inference(state_->context, *state_->loaded.model, {.sequences = 1, .tokens = length});
  std::vector<float> out(static_cast<size_t>(vocab_size()));
  inference.log_probabilities({.inputs = inputs, .length = length, .first_key = {}, .watch = watch}, length - 1,
                              {out.data(), 1, vocab_size()});
  return out;
}

std::vector<int32_t> Model::generate(std::span<const int32_t> prompt, const Sampling& sampling,
                                     const std::function<bool(int32_t)>& on_token) {
  check_ids(prompt, vocab_size());
  require_usage(sampling.max_tokens >= 0, "max_tokens must not be negative, but is {}", sampling.max_tokens);
  std::vector<int32_t> inputs = shifted(state_->loaded, prompt, 0), made;
  const auto first = static_cast<int64_t>(inputs.size());
  Inference inference(state_->context, *state_->loaded.model,
                      {.sequences = 1, .tokens = first, .capacity = first + sampling.max_tokens});
  std::vector<float> log_p(static_cast<size_t>(vocab_size()));
  while (static_cast<int64_t>(made.size()) < sampling.max_tokens) {
    const auto length = static_cast<int64_t>(inputs.size());
    inference.log_probabilities({.inputs = inputs, .length = length, .first_key = {}}, length - 1,
                                {log_p.data(), 1, vocab_size()});
    const double u = uniform01(random_bits(sampling.seed, Stream::kSample, made.size()));
    made.push_back(sample(log_p, sampling.temperature, u));
    if (!on_token(made.back())) break;
    inputs.assign(1, made.back());
  }
  return made;
}

TrainResult train(Context& context, const TrainRequest& request, TrainEvents events) {
  if (!events.validate) events.validate = validation(context, events.should_stop);
  return train_run(context, request, events);
}

}  // namespace longshot
