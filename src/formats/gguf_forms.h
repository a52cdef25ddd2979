// Our models as llama.cpp's: which of them each architecture of GGUF can say, and in which keys.
#pragma once
#include <span>
#include <string>

#include "formats/gguf_families.h"
#include "formats/model_form.h"

namespace longshot {

// In the order in which they are tried. A form has the name of its architecture.
std::span<const ModelForm> gguf_forms();

// general.architecture and its keys, of a model that fits the form; what types the tensors have is the caller's to add. A number that
// does not survive the 32 bits it is given there is refused by name.
GgufKeys gguf_keys(const ModelForm& form, const ModelConfig& model);

// The rules of writing: an architecture without tied embeddings is given a copy of them.
TensorRules gguf_rules(const ModelForm& form, const ModelConfig& model);

}  // namespace longshot
