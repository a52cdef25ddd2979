// A run tested as a whole: what `longshot eval` does, from a token set to a line of the run's evals.jsonl.
#pragma once
#include <functional>
#include <string>

#include "data/token_set.h"
#include "evaluate/evaluation.h"
#include "run/loaded_model.h"

namespace longshot {

struct EvaluationRequest {
  std::string run;   // as it was named; its records get the result, where it is a run and not a checkpoint alone
  std::string data;  // token set, or a fairseq data-bin directory
  EvaluationConfig config{};
  std::string losses{};      // file for every scored token's loss: .csv or .safetensors; "": none
  int ranks_per_window = 0;  // of several: see EvaluationPlan

  // What can be said before the model is loaded. Error(kUsage), or that a file cannot be written.
  void validate() const;
};

struct RunEvaluationCallbacks : EvaluationCallbacks {
  // Everything is checked; the model runs from here on.
  std::function<void(const TokenFile& stream, const EvaluationPlan& plan)> on_start = [](const TokenFile&,
                                                                                         const EvaluationPlan&) {};
  Watch reading{}, writing{};  // of the text, and of the losses
};

struct EvaluatedRun {
  Evaluated evaluated;
  EvaluationLine line;  // as it was recorded; of an evaluation that was stopped nothing is
};

// `model` is the run's, as it was loaded. With `world` all its ranks call this, and the result is rank 0's.
EvaluatedRun evaluate_run(Context& context, const LoadedModel& model, const EvaluationRequest& request,
                          const RunEvaluationCallbacks& callbacks = {}, Communicator* world = nullptr);

}  // namespace longshot
