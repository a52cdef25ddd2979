#include "experiment/experiment.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <numeric>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "base/json_fields.h"
#include "base/lock.h"
#include "base/version.h"
#include "dist/group.h"
#include "dist/heartbeat.h"
#include "evaluate/validation.h"
#include "experiment/speeds.h"
#include "run/biases.h"
#include "run/loaded_model.h"
#include "run/read_run.h"
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

bool is_tested(const RunRecord& record, const EvaluationPlan& tests) {
  const auto recorded = [&](const Evaluation& e) {
    const EvalRecord question = question_of(e, tests);
    return !e.asked_for ||
           std::ranges::any_of(record.evals, [&](const EvalRecord& r) { return same_question(r, question); });
  };
  return std::ranges::all_of(tests.evaluations, recorded);
}

// What a group does next.
struct Task {
  enum Work : int64_t { kNothing, kTrain, kTest };  // kTrain tests too
  Work work = kNothing;
  size_t model = 0;
};

class Experiment {
 public:
  Experiment(Context& context, const ExperimentPlace& place, const ExperimentConfig& config,
             const ExperimentCallbacks& callbacks)
      : context_(context),
        alone_(alone()),
        world_(place.world ? *place.world : *alone_),
        own_group_(group_of(world_, place.ranks_per_model)),
        group_(*own_group_),
        place_(place),
        config_(config),
        callbacks_(group_.is_root() ? callbacks : ExperimentCallbacks()),  // one of a group speaks
        dir_(place.out),
        tokens_(place.data),
        plans_(plan_models(config, tokens_)) {
    for (ModelPlan& plan : plans_) plan.tests.world = own_group_.get();
    callbacks_.should_stop = [this, asked = callbacks.should_stop] {
      if (heartbeat_) heartbeat_->check();
      return asked();
    };
  }

  std::optional<Results> run() {
    for (const ModelPlan& plan : plans_) require_same_model(plan);
    agree();
    std::optional<DirectoryLock> lock;
    world_.on_root([&] {
      make_directories(dir_.path());
      make_subdirectory(dir_.runs());
      for (const ModelPlan& plan : plans_) require_no_link(dir_.run(plan.name).path());
      lock = DirectoryLock::inside(dir_.path());
      open();
    });
    if (!finish_together()) return std::nullopt;
    Results results;
    world_.on_root([&] {
      if (config_.speed_rounds > 0) find_speeds();
      results = read_experiment(dir_);
      write_results(dir_.results(), results);
    });
    return results;
  }

 private:
  using Model = ExperimentCallbacks::Model;

  void agree() {
    if (world_.is_alone()) return;
    Options options;
    ExperimentConfig copy = config_;
    copy.fields(options);
    Facts facts = facts_of(tokens_);
    facts.emplace_back("--ranks-per-model", std::to_string(place_.ranks_per_model));
    require_same_work(world_, options, facts);
  }

  // A model that was begun with other options is another model.
  void require_same_model(const ModelPlan& plan) const {
    const RunDir run = dir_.run(plan.name);
    if (!fs::exists(run.config())) return;
    TrainRequest then;
    Options options;
    then.fields(options);
    options.load_toml(run.config());
    const auto compare = [&](const OptionValues& before, const OptionValues& now) {
      for (const auto& [name, value] : now) {
        const bool free = is_immaterial(name) || name == "recompute" || name == "micro-batch-tokens" ||
                          (name == "steps" && config_.equal_time > 0);
        const std::string& old = before.at(name);
        require_usage(
            free || old == value,
            "{}: holds {}, begun with --{} {}, not {}. Use another --out, or give the model a name of its own: "
            "[variant.NAME] of a recipe",
            place_.out, plan.name, name, old, value);
      }
    };
    compare(option_values(then.model), option_values(plan.model));
    compare(option_values(then.train), option_values(plan.train));
  }

  static void require_no_link(const fs::path& run) {
    require(!fs::is_symlink(run), "{}: a symbolic link is in the way of the run", run.string());
  }

  // compare.json: what was true when the experiment began, and what it has grown to.
  void open() const {
    const TokenFile &train = tokens_.split("train"), &test = tokens_.split(config_.test.split);
    const Watch watch{.should_stop = callbacks_.should_stop};
    train.verify(watch);
    test.verify(watch);
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
    if (fs::exists(dir_.plan())) now = grown(Results::from_json(read_json(dir_.plan()), dir_.plan().string()), now);
    for (const ModelPlan& plan : plans_) {
      const bool known = std::ranges::find(now.planned_runs, plan.name) != now.planned_runs.end();
      if (!known) now.planned_runs.push_back(plan.name);
    }
    write_json(dir_.plan(), now.to_json());
  }

  Results grown(Results then, const Results& now) const {
    require_usage(
        then.data.train_data == now.data.train_data && then.data.test_data == now.data.test_data,
        "{}: holds a comparison on other text: its training and test data have the hashes {} and {}, {} has {} "
        "and {}. Was the text prepared anew? Use another --out.",
        place_.out, then.data.train_data.value_or("unknown"), then.data.test_data.value_or("unknown"), place_.data,
        *now.data.train_data, *now.data.test_data);
    if (then.config == now.config) return then;
    then.config = now.config;
    if (!now.command.empty()) then.command += (then.command.empty() ? "" : "\n") + now.command;
    return then;
  }

  // False where a rank was stopped.
  bool finish_together() {
    bool finished = false;
    heartbeat_.emplace(world_);
    try {
      finished = finish_all();
    } catch (const Stopped&) {  // as false
    }
    heartbeat_->meet();
    heartbeat_.reset();
    const std::vector<std::string> all = world_.gather(finished ? "finished" : "stopped");
    return std::ranges::count(all, "finished") == world_.size();
  }

  // The group takes models that nobody else is at until all are finished. False when stopped.
  bool finish_all() {
    std::vector<size_t> left(plans_.size());
    std::iota(left.begin(), left.end(), 0);
    while (true) {
      std::optional<DirectoryLock> claim;
      Task task;
      group_.on_root([&] { task = next(left, claim); });
      task = of_root(task);
      if (task.work == Task::kNothing) return true;
      const Model model{plans_[task.model], task.model, plans_.size()};
      callbacks_.on_model(model);
      if (!(task.work == Task::kTrain ? train_and_test(model) : test_trained(model))) return false;
    }
  }

  // Claims the first model of `left` that is free and not finished, and waits while others are at all of them.
  Task next(std::vector<size_t>& left, std::optional<DirectoryLock>& claim) const {
    constexpr auto kPause = std::chrono::milliseconds(200);
    while (true) {
      for (auto i = left.begin(); i != left.end();) {
        claim = DirectoryLock::try_beside(dir_.run(plans_[*i].name).path());
        if (!claim) {
          ++i;
          continue;
        }
        const Task task{work_left(plans_[*i]), *i};
        i = left.erase(i);
        if (task.work != Task::kNothing) return task;
      }
      claim.reset();
      if (left.empty()) return {};
      std::this_thread::sleep_for(kPause);
      if (callbacks_.should_stop()) throw Stopped();
    }
  }

  Task::Work work_left(const ModelPlan& plan) const {
    if (!fs::exists(dir_.run(plan.name).record())) return Task::kTrain;
    return is_tested(read_record(plan), plan.tests) ? Task::kNothing : Task::kTest;
  }

  RunRecord read_record(const ModelPlan& plan) const {
    const fs::path path = dir_.run(plan.name).record();
    return run_from_json(read_json(path), path.string());
  }

  // What the group's rank 0 has.
  template <class T>
  T of_root(T value) const {
    group_.broadcast(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  // False when stopped.
  bool test_trained(const Model& model) {
    RunRecord record;
    group_.on_root([&] { record = read_record(model.plan); });
    LoadedModel loaded = load(model, of_root(record.steps.value_or(0)));
    return test(model, loaded, record);
  }

  // False when stopped.
  bool train_and_test(const Model& model) {
    const double start = seconds_now();
    const TrainResult result = train(model);
    if (!result.finished) return false;
    group_.barrier();  // rank 0 has saved
    LoadedModel loaded = load(model, result.step);
    RunRecord record;
    group_.on_root([&] { record = record_of(model.plan, loaded, result); });
    if (!test(model, loaded, record)) return false;
    overhead_ = (seconds_now() - start) / std::max(result.seconds, 1e-3);
    return true;
  }

  // Stopped on all ranks of the group where one was.
  LoadedModel load(const Model& model, int64_t step) const {
    LoadedModel loaded;
    group_.on_each([&] {
      loaded = load_model(dir_.run(model.plan.name).checkpoint(step), {.should_stop = callbacks_.should_stop});
    });
    return loaded;
  }

  TrainResult train(const Model& m) {
    const RunDir run = dir_.run(m.plan.name);
    TrainRequest request;
    request.data = place_.data;
    request.out = run.path().string();
    request.eval_tokens = config_.test.max_tokens;
    request.model = m.plan.model;
    request.train = m.plan.train;
    request.resume = true;
    const PrecisionScope precision(context_, m.plan.train.precision);  // trials of --equal-time, training
    if (config_.equal_time > 0) request.train.steps = steps_in_time(m.plan);
    reset_peak_memory();
    return train_run(context_, request, training_events(m), &group_);
  }

  // Updates that fit into --equal-time, from a few that the group times; chosen once for a run.
  int64_t steps_in_time(const ModelPlan& plan) const {
    const RunDir run = dir_.run(plan.name);
    const fs::path path = run.equal_time();
    int64_t known = 0;
    group_.on_root([&] {
      if (fs::exists(path)) known = read_fields<EqualTime>(read_json(path), path.string()).steps;
    });
    known = of_root(known);
    if (known > 0) return known;
    const auto fitting = of_root(static_cast<int64_t>(config_.equal_time / seconds_per_step(plan)));
    const EqualTime chosen{.steps = std::max(fitting, kFewestSteps), .seconds = config_.equal_time};
    TrainConfig whole = plan.train;
    whole.steps = chosen.steps;
    whole.validate(plan.model.length);  // a warm-up that is longer, for one
    group_.on_root([&] {
      make_directories(run.path());
      write_json(path, write_fields(chosen));
    });
    return chosen.steps;
  }

  double seconds_per_step(const ModelPlan& plan) const {
    Communicator* const group = group_.is_alone() ? nullptr : &group_;
    Transformer model(plan.model, true, Transformer::Memory::kMemory,
                      Trainer::shared_gradients(plan.train, plan.model.length, group));
    model.initialize(context_, plan.train.seed);
    Trainer trial(context_, {.model = model, .tokens = tokens_.split("train"), .world = group}, plan.train);
    return trial.seconds_per_step();
  }

  TrainEvents training_events(const Model& m) const {
    TrainEvents events;
    events.should_stop = callbacks_.should_stop;
    if (group_.is_alone())
      events.reading.should_stop = callbacks_.should_stop;  // several ranks stop together, between steps
    if (m.plan.train.eval_every > 0) events.validate = validation(context_, callbacks_.should_stop, &group_);
    if (!group_.is_root()) return events;
    events.on_note = callbacks_.on_note;
    events.on_step = [this, m](const StepReport& r) {
      Model at = m;
      const double rate = std::max(r.metrics.tokens_per_second.value_or(0), 1e-3);
      const int groups = world_.size() / group_.size();
      const double others = static_cast<double>(tokens_after(m.index)) / rate / groups;
      at.seconds_left = overhead_ * (r.seconds_left + others);
      callbacks_.on_step(at, r);
    };
    return events;
  }

  // To be trained on by the models behind `index`.
  int64_t tokens_after(size_t index) const {
    int64_t tokens = 0;
    for (const ModelPlan& plan : std::span(plans_).subspan(index + 1)) {
      if (!fs::exists(dir_.run(plan.name).record())) tokens += tokens_of(plan, plan.train.steps);
    }
    return tokens;
  }

  static int64_t tokens_of(const ModelPlan& plan, int64_t steps) {
    return steps * plan.train.sequences(plan.model.length) * plan.model.length;
  }

  RunRecord record_of(const ModelPlan& plan, const LoadedModel& loaded, const TrainResult& result) const {
    const RunDir run = dir_.run(plan.name);
    const TrainingState& training = training_of(loaded.info, loaded.dir);
    return {.name = plan.name,
            .position = plan.model.position,
            .variant = plan.variant,
            .train_length = plan.model.length,
            .options = read_options(run),
            .train_data = training.data_hash,
            .arithmetic = training.arithmetic,
            .seed = static_cast<int64_t>(plan.train.seed),
            .parameters = loaded.model->parameters().count(),
            .steps = result.step,
            .tokens = tokens_of(plan, result.step),
            .train_seconds = result.seconds,
            .train_tokens_per_second = result.tokens_per_second,
            .train_peak_memory_bytes = static_cast<int64_t>(result.peak_memory_bytes),
            .curve = read_metrics(run),
            .biases = biases_of(*loaded.model, kShownDistances)};
  }

  // Puts the tests into the record, and the record into the run. False when stopped.
  bool test(const Model& m, LoadedModel& loaded, RunRecord& record) const {
    loaded.model->run_with(m.plan.running);
    const PrecisionScope precision(context_, m.plan.train.precision);
    EvaluationCallbacks callbacks;
    callbacks.should_stop = callbacks_.should_stop;
    callbacks.on_progress = [this, &m](const EvaluationCallbacks::Progress& p) { callbacks_.on_test(m, p); };
    Evaluated evaluated = evaluate(context_, {*loaded.model, loaded.info.weights, loaded.info.step},
                                   tokens_.split(config_.test.split), m.plan.tests, callbacks);
    if (!evaluated.finished) return false;
    record.evals = std::move(evaluated.records);
    record.per_position = std::move(evaluated.per_position);
    record.decomposition = std::move(evaluated.decomposition);
    group_.on_root([&] { write_json(dir_.run(m.plan.name).record(), run_to_json(record)); });
    callbacks_.on_tested(m, record);
    return true;
  }

  // One model of each variant; measured anew when there are other models or test lengths than last time.
  void find_speeds() const {
    std::vector<SpeedSubject> subjects;
    for (const ModelPlan& plan : plans_) {
      const auto same = [&](const SpeedSubject& other) { return other.plan.variant == plan.variant; };
      if (std::ranges::any_of(subjects, same)) continue;
      const fs::path record = dir_.run(plan.name).record();
      const OptionalCount steps = run_from_json(read_json(record), record.string()).steps;
      subjects.push_back({plan, dir_.run(plan.name).checkpoint(steps.value_or(0))});
    }
    const ExperimentSpeeds known = read_speeds(dir_);
    const auto measured = [&](const SpeedSubject& subject) {
      const auto run = std::ranges::find(known.runs, subject.plan.name, &ExperimentSpeeds::Run::name);
      return run != known.runs.end() && std::ranges::all_of(subject.plan.tests.evaluations, [&](const Evaluation& e) {
               return !e.asked_for || e.mode != WindowMode::kNonoverlapping ||
                      std::ranges::find(run->speeds, e.windows.window, &SpeedRecord::length) != run->speeds.end();
             });
    };
    if (known.runs.size() == subjects.size() && std::ranges::all_of(subjects, measured)) return;
    ExperimentSpeeds speeds;
    const Watch watch{.on_progress = callbacks_.on_speeds, .should_stop = callbacks_.should_stop};
    for (auto& [name, records] : measure_speeds(context_, tokens_, subjects, config_.speed_rounds, watch)) {
      speeds.runs.push_back({name, std::move(records)});
    }
    write_speeds(dir_, speeds);
  }

  Context& context_;
  std::unique_ptr<Communicator> alone_;
  Communicator& world_;
  std::unique_ptr<Communicator> own_group_;
  Communicator& group_;
  const ExperimentPlace& place_;
  const ExperimentConfig& config_;
  ExperimentCallbacks callbacks_;
  ExperimentDir dir_;
  TokenSet tokens_;
  std::vector<ModelPlan> plans_;
  std::optional<Heartbeat> heartbeat_;  // while groups work apart
  double overhead_ = 1;                 // time of a model, its tests included, over that of its training
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
