// Hugging Face's tokenizer.json, the parts that byte-level BPE and WordPiece need, and the files of before
// it.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "data/bpe.h"

namespace longshot {

struct AddedToken {
  int32_t id;
  std::string text;
  bool special;
};

// The vocabulary of a tokenizer.json: text of each id; ids without one are empty.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<AddedToken> added;
};

// The members every kind has: model.vocab and added_tokens.
Vocabulary read_vocabulary(const JsonTree& json, const std::string& origin);

// The JSON texts that stand for ...
std::string gpt2_json(const std::string& vocab_json, const std::string& merges_txt,
                      const std::string& origin);                                // two files of GPT-2
std::string bert_json(const std::string& vocab_txt, const std::string& origin);  // BERT's vocab.txt
std::string trained_bpe_json(const std::vector<Merge>& merges);                  // learn_merges()
std::string byte_json();                                                         // bytes as they are

// Parts of them.
JsonTree added_token(int32_t id, const std::string& text, bool special = true);
JsonTree byte_level_bpe(JsonTree vocab, JsonTree merges, JsonTree added);

// GPT-2's printable stand-ins: bytes to text and back. Text with other characters gives no bytes: false.
std::string byte_level_text(std::string_view bytes);
bool byte_level_bytes(std::string_view text, std::string& bytes);

// The token of a byte where characters that have none are spelled in bytes: <0x0A>.
std::string fallback_text(unsigned char byte);

}  // namespace longshot
