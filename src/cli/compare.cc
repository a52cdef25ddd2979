// The main job: train several models alike, test them long, write the report.
#include "base/context.h"
#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "experiment/experiment.h"
#include "report/report.h"
#include "report/tables.h"

namespace longshot {
namespace {

class CompareCommand : public Command {
 public:
  void options(Options& o) override {
    o.add("data", place_.data, "token set made by `longshot prepare`");
    o.add("out", place_.out, "directory for runs, results.json and the report");
    o.add("threads", threads_, "0: all cores, shared with other runs on this machine");
    o.add("ranks-per-model", place_.ranks_per_model,
          "under mpirun: neighbouring ranks that train and test each model together; must divide their number");
    config_.fields(o);
    options_ = &o;
  }

  bool works_in_ranks() const override { return true; }

  int run() override {
    require_usage(!place_.data.empty() && !place_.out.empty(), "longshot compare needs --data DIR and --out DIR");
    place_.command = command_line(*options_);
    place_.world = &world();
    if (threads_ == 0 && !world().is_alone()) threads_ = threads_of_rank(world());
    Context context(threads_);
    if (threads_ == 0) context.share_cores();
    catch_stop_signals();
    const std::optional<Results> results = run_experiment(context, place_, config_, callbacks());
    if (!results) return stopped();
    if (!world().is_root()) return 0;
    ReportFiles report;
    try {
      report = write_report(*results, place_.out, {}, watched(progress_, "drawing the figures"));
    } catch (const Stopped&) {
      return stopped();
    }
    for (const std::string& note : report.notes) progress_.note("longshot: " + note);
    for (const Table& table : result_tables(*results)) fmt::print("{}\n", terminal_text(table));
    fmt::print("{}\n", printable(report.page.string()));
    return 0;
  }

 private:
  using Model = ExperimentCallbacks::Model;

  int stopped() {
    if (world().is_root()) progress_.note("stopped; the same command goes on from here");
    return 1;
  }

  // "[2/8] alibi-L64-s2: perplexity 4.29 at 64, 4.11 at 1024; trained in 35 s"
  static std::string result_text(const Model& m, const RunRecord& r) {
    std::vector<std::string> perplexities;
    for (const EvalRecord& e : r.evals) {
      if (e.mode != r.evals.front().mode) continue;
      perplexities.push_back(
          fmt::format("{} at {}", e.perplexity ? perplexity_text(*e.perplexity) : "not finite", e.length));
    }
    return fmt::format("[{}/{}] {}: perplexity {}; trained in {}", m.index + 1, m.count, r.name,
                       fmt::join(perplexities, ", "), duration_text(r.train_seconds.value_or(0)));
  }

  static std::string command_line(const Options& options) {
    std::string command = "longshot compare";
    for (const Option& o : options.all()) {
      if (o.get && o.get() != o.initial) command += fmt::format(" --{} {}", o.name, o.get());
    }
    return command;
  }

  ExperimentCallbacks callbacks() {
    ExperimentCallbacks callbacks;
    callbacks.on_model = [this](const Model& m) {
      progress_.note(fmt::format("[{}/{}] {}: {}, training at length {}, seed {}", m.index + 1, m.count, m.plan.name,
                                 m.plan.model.position, m.plan.model.length, m.plan.train.seed));
    };
    callbacks.on_step = [this](const Model& m, const StepReport& r) {
      progress_.show(fmt::format("[{}/{}] {}  {}; {} for all", m.index + 1, m.count, m.plan.name, step_text(r),
                                 duration_text(m.seconds_left)));
    };
    callbacks.on_tested = [this](const Model& m, const RunRecord& r) { progress_.note(result_text(m, r)); };
    callbacks.on_speeds = [this](double share) {
      progress_.show(fmt::format("measuring speeds in turn: {:.0f}%", 100 * share));
    };
    callbacks.on_note = [this](const std::string& note) { progress_.note(note); };
    callbacks.on_test = [this](const Model& m, const EvaluationCallbacks::Progress& p) {
      progress_.show(m.plan.name + "  " + evaluation_text(p));
    };
    callbacks.should_stop = stop_requested;
    return callbacks;
  }

  ExperimentPlace place_;
  ExperimentConfig config_;
  int threads_ = 0;
  Options* options_ = nullptr;
  Progress progress_;
};

}  // namespace

std::unique_ptr<Command> make_compare_command() { return std::make_unique<CompareCommand>(); }

}  // namespace longshot
