// Checkpoints: a directory that appears whole or not at all, with a checksum of every file.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/records.h"
#include "base/run_dir.h"
#include "data/tokenizer.h"
#include "model/transformer.h"
#include "train/optimizer.h"

namespace longshot {

struct CheckpointInfo {
  int64_t step = 0;
  ModelConfig model;
  std::string tokenizer_file;  // name inside the directory; "" when there is none
  uint64_t tokenizer_hash = 0;
  Optimizer::State optimizer;
  bool has_optimizer = false;
  Json train;  // options of the training run, by name
};

struct CheckpointContent {
  Transformer& model;
  Optimizer* optimizer = nullptr;        // null: weights only
  const Tokenizer* tokenizer = nullptr;  // null: none travels along
  int64_t step = 0;
  Json train;
};

// Writes beside, syncs, publishes. A failure leaves what was there before.
void save_checkpoint(const fs::path& dir, const CheckpointContent& content);

// Reads and checks state.json and the sizes and checksums of the files it names.
CheckpointInfo read_checkpoint(const fs::path& dir);
// Fills the parameters; every tensor must be there in its shape, and no other.
void load_weights(const fs::path& dir, Transformer& model);
void load_optimizer(const fs::path& dir, const CheckpointInfo& info, const Transformer& model, Optimizer& optimizer);

// Steps of the checkpoints of a run, ascending. Unfinished ones have another name and are not seen.
std::vector<int64_t> checkpoint_steps(const RunDir& run);

// The checkpoint a path means: a checkpoint directory itself, or a run's: its best, or its last without validation.
fs::path find_checkpoint(const fs::path& path);

// A model ready to run, from a run or a checkpoint directory.
struct LoadedModel {
  CheckpointInfo info;
  fs::path dir;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<Tokenizer> tokenizer;  // null when none travelled along
};
LoadedModel load_model(const fs::path& path);

}  // namespace longshot
