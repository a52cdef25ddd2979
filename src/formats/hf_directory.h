// A directory as Hugging Face's programs write it: config.json, and the tensors in model.safetensors or pytorch_model.bin,
// whole or in parts that an index names.
#pragma once
#include <optional>

#include "formats/families.h"

namespace longshot {

bool is_hf_directory(const fs::path& path);  // there is a config.json in it

// The files that hold the tensors, in order; "" for the index where there is none.
struct HfFiles {
  fs::path index;
  std::vector<fs::path> parts;
  bool pickled = false;  // PyTorch's, not safetensors
};
HfFiles hf_files(const fs::path& dir);

// Every tensor of them, mapped. A part that the index names must be a plain name in the directory; what index and parts do
// not agree on is an Error. Pickled files are read, never executed, and their checksums compared.
SourceTensors open_hf_tensors(const fs::path& dir, const Watch& watch = {});

// What config.json says.
struct HfModel {
  const Family* family;
  HfConfig json;
  ModelConfig config;  // checked where nothing is refused
};
HfModel read_hf_model(const fs::path& dir);

}  // namespace longshot
