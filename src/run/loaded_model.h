// A model ready to run, from a run or a checkpoint directory.
#pragma once
#include <memory>

#include "run/checkpoint.h"

namespace longshot {

struct LoadedModel {
  CheckpointInfo info;
  fs::path dir;  // of the checkpoint
  std::unique_ptr<Transformer> model;
  std::unique_ptr<Tokenizer> tokenizer;  // null when none travelled along

  // For what cannot do without; Error when there is none.
  const Tokenizer& required_tokenizer() const;
};
// With `storage`, matrices are kept so, and only running is left; without, all parameters are floats.
LoadedModel load_model(const fs::path& path, const Watch& watch = {}, std::optional<WeightStorage> storage = {});

}  // namespace longshot
