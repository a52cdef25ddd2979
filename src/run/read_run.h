// What a run's directory says of the run, as records.
#pragma once
#include <vector>

#include "run/results.h"
#include "run/run_dir.h"

namespace longshot {

// From config.toml, metrics.jsonl and evals.jsonl, as `train` and `eval` leave them. A record for each checkpoint and
// text that was evaluated; of evaluations that say the same twice, the last counts. `variant` is whatever a number
// depends on but the seed: options, step and text.
std::vector<RunRecord> read_run(const RunDir& run);

}  // namespace longshot
