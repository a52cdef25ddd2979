// Tokenizers as GGUF files describe them (tokenizer.ggml.*), from ours and to a tokenizer.json.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "data/tokenizer.h"

namespace longshot {

struct GgmlVocabulary {
  enum Type : int32_t { kNormal = 1, kUnknown, kControl, kUser, kUnused, kByte };
  enum class Model { kGpt2, kLlama };  // bytes in stand-ins, merges; characters, scores
  static constexpr Choice<Model> kModels[] = {{"gpt2", Model::kGpt2}, {"llama", Model::kLlama}};
  Model model = Model::kGpt2;
  std::string pre;                  // of gpt2: how text is cut
  std::vector<std::string> tokens;  // by id
  std::vector<int32_t> types;       // Type of each; empty: all normal
  std::vector<float> scores{};      // of llama
  std::vector<std::string> merges{};
  std::optional<int32_t> start{}, end{}, unknown{};  // bos, eos, unk
  bool add_start = false;                            // in front of every text
  bool add_space = true;                             // of llama: one in front of a text
};

// Of a tokenizer that llama.cpp can have with the same ids: byte, byte-level BPE that is cut as GPT-2, BLOOM or Llama 3
// cut, and characters merged as Llama 2 does. Others are refused with what stands in the way.
GgmlVocabulary ggml_vocabulary(const Tokenizer& tokenizer);

// The tokenizer.json with the ids that llama.cpp gives. What it cannot say is refused by name.
std::string ggml_tokenizer_json(const GgmlVocabulary& vocabulary, const std::string& origin);

}  // namespace longshot
