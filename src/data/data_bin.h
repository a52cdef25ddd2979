// fairseq's data-bin: X.idx and X.bin, both of its layouts, little-endian.
//
//   memory-mapped  X.idx: "MMIDIDX\0\0", u64 version = 1, u8 type code, u64 N, N i32 sizes (ids of each
//   line), N i64 byte offsets into X.bin
//                  X.bin: ids
//   legacy         X.idx: "TNTIDX\0\0", u64 version = 1, u64 type code, u64 element size, u64 N, u64 S, N + 1
//   i64 offsets of sizes, N + 1 i64
//                  offsets of data (in elements), S i64 sizes;  X.bin: ids plus one
//   type codes     1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16, 9 u32, 10 u64
#pragma once
#include "data/text_input.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace longshot {

// A directory with a dict.txt and at least one X.idx.
bool is_data_bin(const fs::path& dir);

// X.idx + X.bin, `prefix` being DIR/X. Lines end with `</s>`; words are the other ids; the bytes of the text
// are not known (0).
TokenFile open_data_bin(const fs::path& prefix, const Tokenizer& tokenizer);

// The text that ids stand for, words apart by a space. Both must outlive it.
std::unique_ptr<TextInput> decoded_text(const TokenFile& ids, const Tokenizer& tokenizer);

}  // namespace longshot
