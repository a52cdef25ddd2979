// The kinds of tokenizer, each made from the text of its file; `origin` is the name used in messages.
#pragma once
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

}  // namespace longshot
