// The files of a run and of a comparison. The only place that spells these names.
//
//   RUN/config.toml        effective options
//   RUN/metrics.jsonl      one record per logged step or validation
//   RUN/events.out.tfevents.longshot   the same, for TensorBoard, which looks for "tfevents" in a name
//   RUN/evals.jsonl        one record per evaluation
//   RUN/checkpoints/step-00000100/{model.safetensors, optimizer.safetensors, state.json, tokenizer.*}
//   RUN/checkpoints/best.json
//   RUN/abandoned-K/       a branch that was given up by going back to an earlier step; itself a RUN
//
//   DIR/compare.json       what the comparison is: its options, fixed when it begins
//   DIR/runs/NAME/         a RUN, and in it run.json (its record once tested), equal-time.json (its number of steps)
//   DIR/speeds.json        how fast the models run, measured in turn
//   DIR/results.json       the records of all runs
//   DIR/report.html, DIR/figures/, DIR/tables/ (LaTeX), DIR/results.csv (every number)
#pragma once
#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "base/files.h"

namespace longshot {

class RunDir {
 public:
  explicit RunDir(fs::path dir) : dir_(std::move(dir)) {}
  const fs::path& path() const { return dir_; }
  fs::path config() const { return dir_ / "config.toml"; }
  fs::path metrics() const { return dir_ / "metrics.jsonl"; }
  fs::path events() const { return dir_ / "events.out.tfevents.longshot"; }
  fs::path evals() const { return dir_ / "evals.jsonl"; }
  fs::path record() const { return dir_ / "run.json"; }
  fs::path equal_time() const { return dir_ / "equal-time.json"; }
  fs::path checkpoints() const { return dir_ / "checkpoints"; }
  fs::path checkpoint(int64_t step) const { return checkpoints() / fmt::format("{}{:08}", kStep, step); }
  fs::path best() const { return checkpoints() / "best.json"; }
  RunDir abandoned(int64_t k) const { return RunDir(dir_ / fmt::format("{}{}", kAbandoned, k)); }

  // Whether a file of this name in RUN may be one of the above, or what `report` and a lock put there.
  static bool is_name(std::string_view name);
  // The step of "step-00000100", also in front of `ending`; nothing for any other name.
  static std::optional<int64_t> step_of(std::string_view name, std::string_view ending = "");

 private:
  static constexpr const char *kStep = "step-", *kAbandoned = "abandoned-";
  fs::path dir_;
};

// What `compare` writes.
class ExperimentDir {
 public:
  explicit ExperimentDir(fs::path dir) : dir_(std::move(dir)) {}
  const fs::path& path() const { return dir_; }
  fs::path plan() const { return dir_ / "compare.json"; }
  fs::path runs() const { return dir_ / "runs"; }
  RunDir run(const std::string& name) const { return RunDir(runs() / name); }
  fs::path speeds() const { return dir_ / "speeds.json"; }
  fs::path results() const { return dir_ / "results.json"; }
  fs::path report() const { return dir_ / "report.html"; }
  fs::path figures() const { return dir_ / "figures"; }
  fs::path tables() const { return dir_ / "tables"; }
  fs::path numbers() const { return dir_ / "results.csv"; }

 private:
  fs::path dir_;
};

// Files of a checkpoint.
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";

// What stands behind the name of a checkpoint that is being written, and of one that is being replaced.
constexpr const char* kUnfinished = ".tmp";
constexpr const char* kReplaced = ".old";

}  // namespace longshot
