// Checkpoints: a directory that appears whole or not at all, with a checksum of every file. It holds the weights and
// further blocks of numbers of the same shape; what those mean is the trainer's business.
#pragma once
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/records.h"
#include "data/token_set.h"
#include "formats/safetensors.h"
#include "model/transformer.h"
#include "run/run_dir.h"

namespace longshot {

// Numbers laid out like the model's parameters; its tensors are stored under prefix + the parameter's name.
struct NamedBlock {
  std::string prefix;
  std::span<float> numbers;
};

// The same where the numbers are not here as a whole: tensor by tensor, in the order of the model's. What a call returns is
// read before the next.
struct BlockInParts {
  std::string prefix;
  std::function<std::span<const float>(const Tensor& tensor)> tensor;
};

// What going on with training needs beside the blocks.
struct TrainingState {
  OptionValues options;
  std::map<std::string, double> optimizer;  // its own numbers, by name
  std::string data_hash;                    // of the training split
  double seconds = 0;                       // of training so far
  int64_t peak_memory_bytes = 0;
  std::optional<std::string> arithmetic{};  // the instructions that products used; not known of older files
};

// The weights that training began with, where they are another run's.
struct Origin {
  std::string run;  // as it was named
  int64_t step = 0;
  std::string weights;  // CRC-32 of their file
};

struct CheckpointInfo {
  int64_t format = 0;  // of state.json
  int64_t step = 0;
  ModelConfig model;
  std::string tokenizer_file;  // name inside the directory; "" when there is none
  uint64_t tokenizer_hash = 0;
  std::string weights;                    // CRC-32 of their file
  std::optional<TrainingState> training;  // none: weights only
  std::optional<Origin> from;
};

struct CheckpointContent {
  Transformer& model;
  const Tokenizer* tokenizer = nullptr;  // null: none travels along
  int64_t step = 0;
  std::vector<NamedBlock> blocks{};  // beside the weights
  std::vector<BlockInParts> blocks_in_parts{};
  std::optional<TrainingState> training{};
  std::optional<Origin> from{};
};

// Writes beside, syncs, publishes. A failure, or a number that is not finite, leaves what was there before.
void save_checkpoint(const fs::path& dir, const CheckpointContent& content);

// Another program's model, whose tensors are made while they are written, each checked by whoever makes it.
struct ImportedContent {
  const ModelConfig& config;
  std::span<const StreamedTensor> weights;  // all of the model's, in its order
  const Tokenizer* tokenizer = nullptr;     // null: none travels along
  int64_t step = 0;
  Watch watch{};
};
void save_checkpoint(const fs::path& dir, const ImportedContent& content);

// Reads and checks state.json and the sizes and checksums of the files it names.
CheckpointInfo read_checkpoint(const fs::path& dir, const Watch& watch = {});

// The same for a checkpoint whose weights are only copied: their checksum is made on a thread beside the copying. The copy
// counts once finish() has returned; it throws where the sum is not the one they were written with.
class CheckedBeside {
 public:
  explicit CheckedBeside(const fs::path& dir);
  ~CheckedBeside() { stop_ = true; }
  CheckedBeside(const CheckedBeside&) = delete;
  CheckedBeside& operator=(const CheckedBeside&) = delete;

  const CheckpointInfo& info() const { return info_; }
  void finish() { check_.get(); }

 private:
  CheckpointInfo info_;
  std::atomic<bool> stop_ = false;
  std::future<void> check_;  // its destructor waits
};
// What training goes on from; throws where there are weights only.
const TrainingState& training_of(const CheckpointInfo& info, const fs::path& dir);
// What token sets must fit; `name` is what messages call the model.
ModelVocabulary vocabulary_of(const CheckpointInfo& info, const fs::path& dir, const std::string& name);
// How matrices are kept for running.
struct WeightStorage {
  WeightType type = WeightType::kF32;
  bool map_narrow = false;  // those that the file has in 16 bits stay in it, instead
};
// Fills the parameters; every tensor must be there in its shape, and no other. With `storage`, matrices are stored for running
// as they come: memory beyond that is one tensor's floats.
void load_weights(const fs::path& dir, Transformer& model, const Watch& watch = {},
                  std::optional<WeightStorage> storage = {});
// Fills the blocks that were saved beside the weights.
void load_blocks(const fs::path& dir, const Transformer& model, const std::vector<NamedBlock>& blocks);
// The same tensor by tensor, in the order of the model's: f gets each with its numbers.
void load_block(const fs::path& dir, const Transformer& model, const std::string& prefix,
                const std::function<void(const Tensor& tensor, std::span<const float> numbers)>& f);

// Steps of the checkpoints of a run, ascending. Unfinished ones have another name and are not seen.
std::vector<int64_t> checkpoint_steps(const RunDir& run);

// Takes its name away first: one that is removed by half is not seen as a checkpoint. Failing does no harm.
void remove_checkpoint(const fs::path& dir);

// Removes what killed saves and removals left behind.
void sweep_checkpoints(const RunDir& run);

// The checkpoint a path means: a checkpoint directory itself, or a run's: its best, or its last without validation.
fs::path find_checkpoint(const fs::path& path);

std::string hex(uint64_t hash);  // 16 digits, as hashes are written in every file

}  // namespace longshot
