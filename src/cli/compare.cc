// The main job: train several position methods alike, test them long, write the report.
#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/error.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/evaluation.h"
#include "cli/progress.h"
#include "data/token_set.h"
#include "evaluate/summary.h"
#include "report/report.h"
#include "report/table.h"
#include "run/run_dir.h"
#include "train/trainer.h"

namespace longshot {
namespace {

// One model to train and test.
struct Plan {
  std::string position;
  int64_t length;
  uint64_t seed;
  std::string name() const { return fmt::format("{}-L{}-s{}", position, length, seed); }
};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

Biases biases_of(Transformer& model) {
  constexpr int64_t kDistances = 256;
  const int64_t length = std::min(kDistances, model.position().max_length());
  model.prepare_positions(length);
  const DistanceBias bias = model.position().bias(0);
  Biases out{.heads = model.config().heads, .layer = 0};
  if (bias.kind == DistanceBias::Kind::kLinear) out.slopes.assign(bias.slopes.begin(), bias.slopes.end());
  if (bias.kind == DistanceBias::Kind::kTable) {
    for (int64_t h = 0; h < bias.table.rows; ++h) {
      std::vector<double> row;
      for (int64_t d = 0; d < bias.table.cols; ++d) row.push_back(bias.table(h, bias.table.cols - 1 - d));
      out.table.push_back(std::move(row));
    }
  }
  return out;
}

class CompareCommand : public Command {
 public:
  void options(Options& o) override {
    o.add("data", data_, "token set made by `longshot prepare`");
    o.add("out", out_, "directory for runs, results.json, report.html and figures");
    o.add("positions", positions_, "methods to compare");
    o.add("train-lengths", train_lengths_, "train each method at each of these lengths; empty: --length");
    o.add("baseline-positions", baseline_positions_, "methods also trained at --baseline-lengths");
    o.add("baseline-lengths", baseline_lengths_, "longer training lengths to compare extrapolation with");
    o.add("seeds", seeds_, "one model per seed");
    o.add("test-lengths", test_lengths_, "window lengths; empty: 1, 2, 4, .. 16 times the shortest training length");
    o.add("modes", modes_, "how test windows follow each other: nonoverlapping, sliding or both");
    o.add("stride", stride_, "sliding: tokens scored per window; 0: a quarter of the length");
    o.add("split", split_, "of the data to test on");
    o.add("eval-tokens", eval_tokens_, "tokens to test on; 0: the whole split");
    o.add("sliding-tokens", sliding_tokens_, "tokens to test sliding windows on; 0: as many as --eval-tokens");
    o.add("equal-time", equal_time_, "seconds of training for each model instead of --steps; 0: equal steps");
    o.add("threads", threads_, "0: all cores, shared with other runs on this machine");
    model_.fields(o);
    train_.fields(o);
    options_ = &o;
  }

  int run() override {
    require_usage(!data_.empty() && !out_.empty(), "longshot compare needs --data DIR and --out DIR");
    context_.emplace(threads_);
    if (threads_ == 0) context_->share_cores();
    catch_stop_signals();
    const TokenSet tokens(data_);
    if (train_lengths_.empty()) train_lengths_ = {model_.length};
    if (test_lengths_.empty()) {
      const int64_t shortest = *std::min_element(train_lengths_.begin(), train_lengths_.end());
      for (int64_t n = shortest, i = 0; i < 5; ++i, n *= 2) test_lengths_.push_back(n);
    }
    std::ranges::sort(test_lengths_);
    const std::vector<Plan> plans = make_plans();
    make_directories(fs::path(out_) / "runs");
    Results results = opening(tokens);
    for (size_t i = 0; i < plans.size(); ++i) {
      const fs::path record = run_path(plans[i]) / "run.json";
      if (!fs::exists(record)) {
        fmt::print(stderr, "[{}/{}] {}: training at length {}, seed {}\n", i + 1, plans.size(), plans[i].position,
                   plans[i].length, plans[i].seed);
        if (!train_and_test(plans[i], tokens)) {
          fmt::print(stderr, "stopped; the same command goes on from here\n");
          return 1;
        }
      }
      results.runs.push_back(run_from_json(read_json(record), record.string()));
    }
    write_results(fs::path(out_) / "results.json", results);
    const ReportFiles report = write_report(results, out_);
    for (const std::string& note : report.notes) fmt::print(stderr, "longshot: {}\n", note);
    for (const Table& table : perplexity_tables(results)) fmt::print("{}\n", terminal_text(table));
    fmt::print("{}\n", report.page.string());
    return 0;
  }

 private:
  bool uses(const std::string& mode) const { return std::ranges::count(modes_, mode) > 0; }
  fs::path run_path(const Plan& plan) const { return fs::path(out_) / "runs" / plan.name(); }

  std::vector<Plan> make_plans() {
    std::vector<Plan> plans;
    const auto add = [&](const std::string& position, int64_t length) {
      for (const int64_t seed : seeds_) {
        const Plan plan{position, length, static_cast<uint64_t>(seed)};
        const auto same = [&](const Plan& other) { return other.name() == plan.name(); };
        if (std::none_of(plans.begin(), plans.end(), same)) plans.push_back(plan);
      }
    };
    for (const std::string& position : positions_) {
      for (const int64_t length : train_lengths_) add(position, length);
    }
    for (const std::string& position : baseline_positions_) {
      for (const int64_t length : baseline_lengths_) add(position, length);
    }
    for (const Plan& plan : plans) {  // everything is checked before anything is trained
      ModelConfig model = config_of(plan, 1);
      model.validate();
      train_.validate(model.length);
    }
    for (const std::string& mode : modes_) {
      require_usage(mode == "nonoverlapping" || mode == "sliding",
                    "--modes: '{}' is not known; there are nonoverlapping and sliding", mode);
    }
    for (const int64_t n : test_lengths_) require_usage(n > 0, "--test-lengths: {} is not positive", n);
    require_usage(!plans.empty(),
                  "there is nothing to compare: --positions, --seeds and --train-lengths must not be empty");
    return plans;
  }

  ModelConfig config_of(const Plan& plan, int64_t vocab) const {
    ModelConfig model = model_;
    model.position = plan.position;
    model.length = plan.length;
    model.vocab = vocab;
    return model;
  }

  // What was true when the comparison began; kept for later starts of the same comparison.
  Results opening(const TokenSet& tokens) {
    const fs::path path = fs::path(out_) / "compare.json";
    const std::string config = options_->to_toml(false);
    if (fs::exists(path)) {
      const Json old = read_json(path);
      require_usage(old.value("config", "") == config,
                    "{}: holds a comparison with other options (see compare.json). Use another --out.", out_);
      return Results::from_json(old, path.string());
    }
    std::string command = "longshot compare";
    for (const Option& o : options_->all()) {
      if (o.get() != o.initial) command += fmt::format(" --{} {}", o.name, o.get());
    }
    Results results{.version = version(),
                    .machine = this_machine(context_->threads()),
                    .date = utc_now(),
                    .command = command,
                    .config = config,
                    .data = {.name = fs::path(data_).filename().string(),
                             .tokenizer = std::string(tokens.tokenizer().name()),
                             .vocabulary = tokens.tokenizer().vocab_size(),
                             .train_tokens = tokens.split("train").size()}};
    write_json(path, results.to_json());
    return results;
  }

  // Updates that fit into --equal-time, from a few timed steps; at least ten.
  int64_t steps_in_time(Trainer& trainer, Transformer& model, uint64_t seed) {
    const double seconds = trainer.seconds_per_step();
    model.initialize(*context_, seed);
    return std::max<int64_t>(static_cast<int64_t>(equal_time_ / seconds), 10);
  }

  // False when stopped.
  bool train_and_test(const Plan& plan, const TokenSet& tokens) {
    const RunDir run(run_path(plan));
    Transformer model(config_of(plan, tokens.tokenizer().vocab_size()), true);
    model.initialize(*context_, plan.seed);
    TrainConfig train = train_;
    train.seed = plan.seed;
    make_directories(run.path());
    const Trainer::Inputs inputs{model, tokens.split("train"), &tokens.tokenizer()};
    if (equal_time_ > 0) train.steps = steps_of(run, inputs, train);
    RunWriter writer(run);
    reset_peak_memory();
    Trainer trainer(*context_, inputs, train);
    const int64_t start = writer.checkpoints().empty() ? 0 : writer.checkpoints().back();
    if (start > 0) trainer.restore(run.checkpoint(start), read_checkpoint(run.checkpoint(start)));
    writer.begin_at(start);
    writer.write_config(run_toml(plan, train));
    Progress progress;
    TrainerCallbacks callbacks;
    callbacks.should_stop = stop_requested;
    callbacks.on_step = [&](const StepReport& r) { progress.show(plan.name() + "  " + step_text(r)); };
    const TrainResult result = trainer.train(writer, callbacks);
    if (!result.finished) return false;

    RunRecord record{.name = plan.name(),
                     .position = plan.position,
                     .train_length = plan.length,
                     .seed = static_cast<int64_t>(plan.seed),
                     .parameters = model.parameters().count(),
                     .steps = result.step,
                     .tokens = result.step * trainer.tokens_per_step(),
                     .train_seconds = result.seconds,
                     .train_tokens_per_second = result.tokens_per_second,
                     .train_peak_memory_bytes = static_cast<int64_t>(result.peak_memory_bytes)};
    for (const MetricsRecord& m : read_metrics(run)) {
      record.curve.push_back({.step = m.step, .tokens = m.tokens, .seconds = m.seconds, .loss = m.loss});
    }
    record.biases = biases_of(model);
    if (record.biases->slopes.empty() && record.biases->table.empty()) record.biases.reset();
    test(plan, model, tokens.split(split_), record);
    if (stop_requested()) return false;
    write_json(run.path() / "run.json", run_to_json(record));
    return true;
  }

  int64_t steps_of(const RunDir& run, const Trainer::Inputs& inputs, const TrainConfig& train) {
    const fs::path path = run.path() / "equal-time.json";
    if (fs::exists(path)) return read_json(path).value("steps", int64_t{10});
    Trainer trial(*context_, inputs, train);
    const int64_t steps = steps_in_time(trial, inputs.model, train.seed);
    write_json(path, {{"steps", steps}, {"seconds", equal_time_}});
    return steps;
  }

  std::string run_toml(const Plan& plan, TrainConfig train) const {
    ModelConfig model = config_of(plan, 1);
    Options options;
    model.fields(options);
    train.fields(options);
    return options.to_toml(false);
  }

  void test(const Plan& plan, Transformer& model, const TokenFile& stream, RunRecord& record) {
    const int64_t tokens = scored_tokens(stream, test_lengths_, eval_tokens_, true);
    const auto in_windows = [&](int64_t length) {
      return evaluate(
          *context_, model, stream,
          {.protocol = {length, length}, .mode = "nonoverlapping", .split = split_, .score = "same", .tokens = tokens});
    };
    LossesByLength losses;
    for (const int64_t length : test_lengths_) {
      if (length > model.position().max_length()) continue;
      if (uses("sliding")) test_sliding(length, tokens, model, stream, record);
      if (!uses("nonoverlapping")) continue;
      Evaluated evaluated = in_windows(length);
      record.evals.push_back(std::move(evaluated.record));
      losses[length] = std::move(evaluated.losses);
    }
    if (!losses.empty() && losses.rbegin()->first > plan.length && !losses.contains(plan.length))
      losses[plan.length] = in_windows(plan.length).losses;  // not asked for, but the decomposition needs it
    analyse_windows(losses, record);
  }

  void test_sliding(int64_t length, int64_t tokens, Transformer& model, const TokenFile& stream, RunRecord& record) {
    const int64_t stride = std::min(stride_ > 0 ? stride_ : std::max<int64_t>(length / 4, 1), length);
    const EvalRequest request{.protocol = {length, stride},
                              .mode = "sliding",
                              .split = split_,
                              .score = "same",
                              .tokens = sliding_tokens_ > 0 ? std::min(sliding_tokens_, tokens) : tokens};
    record.evals.push_back(evaluate(*context_, model, stream, request).record);
  }

  std::string data_, out_, split_ = "valid";
  std::vector<std::string> positions_ = {"alibi", "sinusoidal", "rotary", "t5"}, baseline_positions_ = {"sinusoidal"},
                           modes_ = {"nonoverlapping"};
  std::vector<int64_t> train_lengths_, baseline_lengths_, seeds_ = {1}, test_lengths_;
  int64_t stride_ = 0, eval_tokens_ = 0, sliding_tokens_ = 0;
  double equal_time_ = 0;
  int threads_ = 0;
  std::optional<Context> context_;
  ModelConfig model_;
  TrainConfig train_;
  Options* options_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> make_compare_command() { return std::make_unique<CompareCommand>(); }

}  // namespace longshot
