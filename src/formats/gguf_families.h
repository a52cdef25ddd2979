// Architectures of GGUF files: what their keys mean, and which of their tensors are ours. llama.cpp defines them: what a file
// leaves open is what it computes, so that GELU is the tanh form in all of them.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "formats/hf_config.h"
#include "formats/tensor_rules.h"

namespace longshot {

struct GgufFamily {
  const char* name;                    // "MPT"
  std::string_view architecture;       // "mpt": the keys of its own begin with it
  std::vector<std::string_view> keys;  // of these, such as not every architecture has
  ModelConfig (*read_config)(HfConfig& keys, const Gguf& file);
};

std::span<const GgufFamily> gguf_families();
// By general.architecture; an Error names those there are.
const GgufFamily& gguf_family_of(const Gguf& file);

// All architectures name their tensors alike. Queries, keys and values lie in one matrix, or with SwiGLU in three, of which
// queries and keys have the two rows of a rotated pair side by side.
TensorRules gguf_rules(const ModelConfig& model);

// What a file says of its model.
struct GgufModel {
  const GgufFamily* family;
  HfConfig keys;       // those of the architecture, with what is refused
  ModelConfig config;  // checked where nothing is refused
};
GgufModel read_gguf_model(const Gguf& file);
// Throws with all that is refused.
void require_supported(const GgufModel& model);

// The value of a key as people and HfConfig read it; of a list its length and type.
JsonTree gguf_value(const Gguf& file, const GgufKey& key);

}  // namespace longshot
