#include "longshot.h"

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
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Model Model::load(const std::string& path, int threads, const Watch& watch, std::optional<WeightType> weights) {
  return Model(std::make_unique<State>(
      load_model(path, watch, WeightStorage{.type = weights.value_or(WeightType::kF32), .map_narrow = !weights}),
      threads));
}

int64_t Model::train_length() const { return state_->loaded.info.model.length; }
int64_t Model::vocab_size() const { return state_->loaded.info.model.vocab; }
const std::string& Model::position() const { return state_->loaded.info.model.position; }

std::vector<int32_t> Model::encode(std::string_view text) const {
  return state_->loaded.required_tokenizer().encode(text);
}
std::string Model::decode(std::span<const int32_t> ids) const {
  return state_->loaded.required_tokenizer().decode(ids);
}

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

Generated Model::generate(std::span<const int32_t> prompt, const GenerationConfig& config,
                          const GenerationCallbacks& callbacks) {
  return longshot::generate(state_->context, state_->loaded, prompt, config, callbacks);
}

ScoredStream Model::score_unbounded(const TextReader& read, const UnboundedConfig& config,
                                    const ScoreStreamCallbacks& callbacks) {
  return longshot::score_unbounded(state_->context, state_->loaded, read, config, callbacks);
}

GeneratedStream Model::generate_unbounded(TextRequest request, const UnboundedConfig& config, const Watch& preparing) {
  return longshot::generate_unbounded(state_->context, state_->loaded, std::move(request), config, preparing);
}

EvaluatedRun Model::evaluate(const EvaluationRequest& request, const RunEvaluationCallbacks& callbacks) {
  return evaluate_run(state_->context, state_->loaded, request, callbacks);
}

void Model::run_with(const PositionSettings& settings) { state_->loaded.model->run_with(settings); }

ScoredText Model::score_text(std::string_view text, const Watch& watch) {
  return longshot::score_text(state_->context, state_->loaded, text, watch);
}

TrainResult train(Context& context, const TrainRequest& request, TrainEvents events) {
  if (!events.validate) events.validate = validation(context, events.should_stop);
  return train_run(context, request, events);
}

}  // namespace longshot
