// The tokenizer of a GGUF file, from and to its keys.
#pragma once
#include <memory>
#include <optional>

#include "data/ggml_vocabulary.h"
#include "formats/gguf.h"

namespace longshot {

// None where the file says that it has none, or does not speak of one. What its keys ask for and we cannot do is refused by
// name.
std::optional<GgmlVocabulary> gguf_vocabulary(const Gguf& file);
std::unique_ptr<Tokenizer> gguf_tokenizer(const Gguf& file);  // null: none

// Adds the keys of a tokenizer, or of there being none (null). A token without a text stands for every further row of the
// embeddings, so that there are `rows`.
void add_tokenizer(GgufKeys& keys, const Tokenizer* tokenizer, int64_t rows);

}  // namespace longshot
