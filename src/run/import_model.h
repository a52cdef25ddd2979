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
  // Of fairseq's checkpoints alone: the dict.txt, "" where there is none; and the method, since nothing in the file tells ALiBi
  // from sinusoidal.
  std::string dict{}, position = "alibi";
};

struct ImportSummary {
  std::string family;
  ModelConfig config;
  int64_t parameters = 0;
  uint64_t bytes = 0;          // of the weights, as written
  std::string tokenizer_name;  // "" where none travelled along
  int tokenizer_size = 0;
  bool position_known = true;  // false: as the options said
};

// What `longshot import` does: one of the following, by what `source` is.
ImportSummary import_model(const fs::path& source, const RunDir& run, const ImportOptions& options = {});

// A Hugging Face directory. Error(kUsage) where `run` holds one already; what the model asks for and this program does not do
// is an Error that names all of it.
ImportSummary import_hf(const fs::path& dir, const RunDir& run, const ImportOptions& options = {});
// The same of a GGUF file. Blocks of quantised weights become f32 where no type is asked for.
ImportSummary import_gguf(const fs::path& path, const RunDir& run, const ImportOptions& options = {});
// The same of a checkpoint of fairseq's, whose weights become f32.
ImportSummary import_fairseq(const fs::path& path, const RunDir& run, const ImportOptions& options = {});

// What every importer ends with: a run whose only checkpoint holds these weights. `origin` is what messages call the source.
struct ImportedModel {
  std::string origin;
  ModelConfig config;
  std::vector<StreamedTensor> weights;
  std::unique_ptr<Tokenizer> tokenizer;  // null: none travels along
  int64_t step = 0;
};
ImportSummary write_imported(const ImportedModel& model, const RunDir& dir, const Watch& watch = {});

}  // namespace longshot
