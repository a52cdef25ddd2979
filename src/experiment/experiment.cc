#include "experiment/experiment.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>

#include "base/context.h"
#include "base/error.h"
#include "base/json_fields.h"
#include "base/lock.h"
#include "base/version.h"
#include "evaluate/validation.h"
#include "run/biases.h"
#include "run/loaded_model.h"
#include "train/train_run.h"

namespace longshot {

// Steps that fitted into the time given, measured when the run began.
struct EqualTime {
  int64_t steps = 0;
  double seconds = 0;
};

template <class V>
void fields(V& v, EqualTime& e) {
  v("steps", e.steps, kPositiveCount);
  v("seconds", e.seconds, kNotNegative);
}

namespace {

constexpr int64_t kShownDistances = 256;  // of a bias
constexpr int64_t kFewestSteps = 10;      // of --equal-time

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

class Experiment {
 public:
  Experiment(Context& context, const ExperimentPlace& place, const ExperimentConfig& config,
             const ExperimentCallbacks& callbacks)
      : context_(context),
        place_(place),
        config_(config),
        callbacks_(callbacks),
        dir_(place.out),
        tokens_(place.data),
        plans_(plan_models(config, tokens_)) {}

  std::optional<Results> run() {
    make_directories(dir_.runs());
    const DirectoryLock lock = DirectoryLock::inside(dir_.path());
    Results results = opening();
    for (size_t i = 0; i < plans_.size(); ++i) {
      const Model model{plans_[i], i, plans_.size()};
      const fs::path record = dir_.run(plans_[i].name).record();
      if (!fs::exists(record)) {
        callbacks_.on_model(model);
        if (!train_and_test(model)) return std::nullopt;
      }
      results.runs.push_back(run_from_json(read_json(record), record.string()));
    }
    write_results(dir_.results(), results);
    return results;
  }

 private:
  using Model = ExperimentCallbacks::Model;

  // What was true when the experiment began; kept for later starts of the same experiment.
  Results opening() const {
    const TokenFile &train = tokens_.split("train"), &test = tokens_.split(config_.test.split);
    train.verify();
    test.verify();
    Results now{.version = version(),
                .machine = this_machine(context_.threads()),
                .date = utc_now(),
                .command = place_.command,
                .config = config_.to_toml(),
                .data = {.name = fs::path(place_.data).filename().string(),
                         .tokenizer = std::string(tokens_.tokenizer().name()),
                         .vocabulary = tokens_.tokenizer().vocab_size(),
                         .train_tokens = train.size(),
                         .train_data = hex(train.data_hash()),
                         .test_data = hex(test.data_hash())}};
    if (!fs::exists(dir_.plan())) {
      write_json(dir_.plan(), now.to_json());
      return now;
    }
    Results then = Results::from_json(read_json(dir_.plan()), dir_.plan().string());
    require_usage(then.config == now.config,
                  "{}: holds a comparison with other options (see compare.json). Use another --out.", place_.out);
    require_usage(
        then.data.train_data == now.data.train_data && then.data.test_data == now.data.test_data,
        "{}: holds a comparison on other text: its training and test data have the hashes {} and {}, {} has {} "
        "and {}. Was the text prepared anew? Use another --out.",
        place_.out, then.data.train_data.value_or("unknown"), then.data.test_data.value_or("unknown"), place_.data,
        *now.data.train_data, *now.data.test_data);
    return then;
  }

  // False when stopped.
  bool train_and_test(const Model& m) {
    const RunDir run = dir_.run(m.plan.name);
    TrainRequest request;
    request.data = place_.data;
    request.out = run.path().string();
    request.eval_tokens = config_.test.max_tokens;
    request.model = m.plan.model;
    request.train = m.plan.train;
    request.resume = true;
    const PrecisionScope precision(context_, m.plan.train.precision);  // trials of --equal-time, training, testing
    if (config_.equal_time > 0) request.train.steps = steps_in_time(m.plan);
    reset_peak_memory();
    const TrainResult result = train_run(context_, request, training_events(m));
    if (!result.finished) return false;

    LoadedModel loaded = load_model(run.checkpoint(result.step), {.should_stop = callbacks_.should_stop});
    RunRecord record = record_of(m.plan, *loaded.model, result);
    record.curve = read_metrics(run);
    if (!test(m, loaded, record)) return false;
    write_json(run.record(), run_to_json(record));
    return true;
  }

  // Updates that fit into --equal-time, from a few timed steps; chosen once for a run.
  int64_t steps_in_time(const ModelPlan& plan) const {
    const RunDir run = dir_.run(plan.name);
    const fs::path path = run.equal_time();
    if (fs::exists(path)) return read_fields<EqualTime>(read_json(path), path.string()).steps;
    Transformer model(plan.model, true);
    model.initialize(context_, plan.train.seed);
    Trainer trial(context_, {.model = model, .tokens = tokens_.split("train")}, plan.train);
    const auto fitting = static_cast<int64_t>(config_.equal_time / trial.seconds_per_step());
    const EqualTime chosen{.steps = std::max(fitting, kFewestSteps), .seconds = config_.equal_time};
    TrainConfig whole = plan.train;
    whole.steps = chosen.steps;
    whole.validate(plan.model.length);  // a warm-up that is longer, for one
    make_directories(run.path());
    write_json(path, write_fields(chosen));
    return chosen.steps;
  }

  TrainEvents training_events(const Model& m) const {
    TrainEvents events;
    events.should_stop = callbacks_.should_stop;
    events.on_step = [this, &m](const StepReport& r) { callbacks_.on_step(m, r); };
    events.on_note = callbacks_.on_note;
    if (m.plan.train.eval_every > 0) events.validate = validation(context_, callbacks_.should_stop);
    return events;
  }

  RunRecord record_of(const ModelPlan& plan, Transformer& model, const TrainResult& result) const {
    return {.name = plan.name,
            .position = plan.model.position,
            .variant = plan.variant,
            .train_length = plan.model.length,
            .seed = static_cast<int64_t>(plan.train.seed),
            .parameters = model.parameters().count(),
            .steps = result.step,
            .tokens = result.step * plan.train.sequences(plan.model.length) * plan.model.length,
            .train_seconds = result.seconds,
            .train_tokens_per_second = result.tokens_per_second,
            .train_peak_memory_bytes = static_cast<int64_t>(result.peak_memory_bytes),
            .biases = biases_of(model, kShownDistances)};
  }

  // False when stopped.
  bool test(const Model& m, LoadedModel& loaded, RunRecord& record) const {
    EvaluationCallbacks callbacks;
    callbacks.should_stop = callbacks_.should_stop;
    callbacks.on_progress = [this, &m](const EvaluationCallbacks::Progress& p) { callbacks_.on_test(m, p); };
    Evaluated evaluated = evaluate(context_, {*loaded.model, loaded.info.weights, loaded.info.step},
                                   tokens_.split(config_.test.split), m.plan.tests, callbacks);
    record.evals = std::move(evaluated.records);
    record.per_position = std::move(evaluated.per_position);
    record.decomposition = std::move(evaluated.decomposition);
    return evaluated.finished;
  }

  Context& context_;
  const ExperimentPlace& place_;
  const ExperimentConfig& config_;
  const ExperimentCallbacks& callbacks_;
  ExperimentDir dir_;
  TokenSet tokens_;
  std::vector<ModelPlan> plans_;
};

}  // namespace

std::optional<Results> run_experiment(Context& context, const ExperimentPlace& place, const ExperimentConfig& config,
                                      const ExperimentCallbacks& callbacks) {
  try {
    return Experiment(context, place, config, callbacks).run();
  } catch (const Stopped&) {
    return std::nullopt;
  }
}

}  // namespace longshot
