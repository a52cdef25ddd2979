// A run as a directory that Hugging Face's programs read: config.json, model.safetensors, generation_config.json, the
// tokenizer and a model card. Tensors are made while they are written, without a copy of the model in memory.
#pragma once
#include <optional>
#include <string>

#include "base/watch.h"
#include "formats/dtype.h"
#include "run/run_dir.h"

namespace longshot {

struct HfExport {
  fs::path run, out;
  std::string family{};         // "": the first of hf_forms() that fits
  std::optional<DType> type{};  // of all weights; none: as they are stored
  Watch watch{};
};

struct HfExported {
  std::string family;
  int64_t parameters = 0;
  uint64_t bytes = 0;       // of the weights
  std::string tokenizer{};  // name of its file; "" where none travelled along
};

// `out` must not be there, or be an empty directory; it appears whole or not at all. Error(kUsage) where the model does not
// fit, with every option that would have to differ.
HfExported export_hf(const HfExport& request);

}  // namespace longshot
