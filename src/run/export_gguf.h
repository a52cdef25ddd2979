// A run as a GGUF file that llama.cpp reads, the tokenizer in it. Tensors are made while they are written, without a copy of
// the model in memory.
#pragma once
#include <optional>
#include <string>

#include "base/watch.h"
#include "formats/ggml_blocks.h"
#include "run/run_dir.h"

namespace longshot {

struct GgufExport {
  fs::path run, out;
  std::string family{};            // "": the first of gguf_forms() that fits
  std::optional<GgmlType> type{};  // of all matrices; none: as they are stored
  bool tokenizer = true;           // false: none travels along
  Watch watch{};
};

struct GgufExported {
  std::string family;
  int64_t parameters = 0;
  uint64_t bytes = 0;       // of the file
  std::string tokenizer{};  // "gpt2"; "" where none travelled along
};

// `out` must not be there; it appears whole or not at all. Error(kUsage) where the model or its tokenizer does not fit, with
// every option that would have to differ.
GgufExported export_gguf(const GgufExport& request);

}  // namespace longshot
