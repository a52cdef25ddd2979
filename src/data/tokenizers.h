// The kinds of tokenizer, each made from the text of its file; `origin` is the name used in messages.
#pragma once
#include "base/json.h"
#include "data/tokenizer.h"
#include "data/word_map.h"

namespace longshot {

// Ids are bytes. Exact for any input.
std::unique_ptr<Tokenizer> byte_tokenizer();

// fairseq's words: ids of a dict.txt, `</s>` behind every line, `<unk>` for what is not in it.
std::unique_ptr<Tokenizer> word_tokenizer(std::string dict, const std::string& origin);

// The dict.txt of counted words: by count, then by code points; padded to a multiple of 8 entries. At most
// `vocab_size` entries before padding, the four special ones included; 0 keeps all.
std::string make_dict(const WordCounts& counts, int vocab_size);

// Byte-level BPE and WordPiece, from a tokenizer.json: its text, and the same parsed.
std::unique_ptr<Tokenizer> bpe_tokenizer(std::string text, const JsonTree& json, const std::string& origin);
std::unique_ptr<Tokenizer> wordpiece_tokenizer(std::string text, const JsonTree& json, const std::string& origin);

// Either of them, by what the file says.
std::unique_ptr<Tokenizer> hf_tokenizer(std::string text, const std::string& origin);

// A SentencePiece .model: unigram or BPE. Lines are encoded one by one, as spm_encode does; a line's end is
// the piece "\n", its byte <0x0A>, or </s>, whichever the model has.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string model, const std::string& origin);

// For a model with `rows` rows of embeddings: ids from the tokenizer's vocab_size() on have no text.
std::unique_ptr<Tokenizer> padded_tokenizer(std::unique_ptr<Tokenizer> tokens, int rows);

}  // namespace longshot
