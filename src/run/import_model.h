// Other programs' models as runs: written tensor by tensor, without a copy of the model in memory.
#pragma once
#include <optional>

#include "data/tokenizer.h"
#include "formats/tensor_rules.h"
#include "run/run_dir.h"

namespace longshot {

struct ImportOptions {
  std::optional<DType> type{};  // of all weights; none: as they are stored
  bool tokenizer = true;        // false: none travels along
  Watch watch{};
};

struct ImportSummary {
  std::string family;
  ModelConfig config;
  int64_t parameters = 0;
  uint64_t bytes = 0;          // of the weights, as written
  std::string tokenizer_name;  // "" where none travelled along
  int tokenizer_size = 0;
};

// A Hugging Face directory. Error(kUsage) where `run` holds one already; what the model asks for and this program does not do
// is an Error that names all of it.
ImportSummary import_hf(const fs::path& dir, const RunDir& run, const ImportOptions& options = {});
// The same of a GGUF file. Blocks of quantised weights become f32 where no type is asked for.
ImportSummary import_gguf(const fs::path& path, const RunDir& run, const ImportOptions& options = {});

// What every importer ends with: a run whose only checkpoint, of step 0, holds these weights. `origin` is what messages call
// the source.
struct ImportedModel {
  std::string origin;
  ModelConfig config;
  std::vector<MadeTensor> tensors;
  std::unique_ptr<Tokenizer> tokenizer;  // null: none travels along
};
std::string config_toml(ModelConfig config);  // as a run's config.toml has it
ImportSummary write_imported(const ImportedModel& model, const RunDir& dir, const Watch& watch = {});

}  // namespace longshot
