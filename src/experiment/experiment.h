// Trains and tests the models of an experiment, one after the other, into one directory. Whatever is finished is not done
// twice: an experiment that was broken off goes on where it stopped, and one that grew by seeds, methods or lengths does
// what is missing.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "dist/communicator.h"
#include "experiment/plan.h"
#include "train/trainer.h"

namespace longshot {

struct ExperimentCallbacks {
  struct Model {
    const ModelPlan& plan;
    size_t index = 0, count = 0;  // of all models
    double seconds_left = 0;      // of the whole experiment, from what was measured so far; 0: not known yet
  };
  std::function<void(const Model&)> on_model = [](const Model&) {};
  std::function<void(const Model&, const RunRecord&)> on_tested = [](const Model&, const RunRecord&) {};
  std::function<void(const Model&, const StepReport&)> on_step = [](const Model&, const StepReport&) {};
  std::function<void(const std::string&)> on_note = [](const std::string&) {};
  std::function<void(const Model&, const EvaluationCallbacks::Progress&)> on_test =
      [](const Model&, const EvaluationCallbacks::Progress&) {};
  std::function<void(double share)> on_speeds = [](double) {};  // speeds are being measured
  std::function<bool()> should_stop = [] { return false; };
};

struct ExperimentPlace {
  std::string data;       // directory of the token set
  std::string out;        // directory of the experiment
  std::string command{};  // as typed, for the record
  // Ranks that train whole models side by side, in groups of neighbours: each group takes the next model that no process has
  // locked. Only a group's rank 0 calls back, but for should_stop. Null: this process alone.
  Communicator* world = nullptr;
  int ranks_per_model = 1;
};

// Everything that can be checked without training is checked first. None when stopped; results.json is written otherwise, by
// rank 0.
std::optional<Results> run_experiment(Context& context, const ExperimentPlace& place, const ExperimentConfig& config,
                                      const ExperimentCallbacks& callbacks);

}  // namespace longshot
