// A command that runs a model: the options all of them have, and the model they ask for.
#pragma once
#include <optional>
#include <string>

#include "base/context.h"
#include "base/options.h"
#include "cli/progress.h"
#include "run/loaded_model.h"

namespace longshot {

struct ModelOptions {
  std::optional<double> epsilon{};
  Precision precision = Precision::kF32;
  std::optional<WeightType> weights{};
  int threads = 0;
  PositionSettings position{};  // its options of running

  void fields(Options& o);
  void validate() const;
  // As asked for, or as the precision has it.
  WeightStorage storage() const;
};

// The model of a run and what it runs on, as the options ask. From here on Ctrl-C asks for a clean end.
struct ModelSession {
  ModelSession(const ModelOptions& options, const std::string& run, Progress& progress);

  Context context;
  LoadedModel loaded;
};

}  // namespace longshot
