// What the directories of runs and of experiments say, as records.
#pragma once
#include <vector>

#include "run/results.h"
#include "run/run_dir.h"

namespace longshot {

// The run's options from config.toml, each as text; those that are immaterial left out.
OptionValues read_options(const RunDir& run);

// From config.toml, metrics.jsonl and evals.jsonl, as `train` and `eval` leave them. A record for each checkpoint and
// text that was evaluated; of evaluations that say the same twice, the last counts.
std::vector<RunRecord> read_run(const RunDir& run);

// An experiment as far as it has come: finished models with their tests, others with their curves.
Results read_experiment(const ExperimentDir& dir);

// speeds.json; empty where there is none.
struct ExperimentSpeeds {
  struct Run {
    std::string name;
    std::vector<SpeedRecord> speeds{};
  };
  std::vector<Run> runs{};
};
ExperimentSpeeds read_speeds(const ExperimentDir& dir);
void write_speeds(const ExperimentDir& dir, const ExperimentSpeeds& speeds);

}  // namespace longshot
