// What tokenizers need to know of Unicode: classes, lower case, canonical decomposition and composition. utf8proc enters here.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/utf8.h"

namespace longshot {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace, kNonspacingMark, kPunctuation, kControl };

// kSpace is Unicode's White_Space; kControl all of general category C. Not a code point: kOther.
CharClass char_class(uint32_t code_point);

// Appends the lower case of one character, without regard to its neighbours.
void append_lower(uint32_t code_point, std::u32string& out);

// Canonical decomposition with combining marks in canonical order, and its inverse. Bytes that are not UTF-8
// become U+FFFD.
std::u32string nfd(std::string_view text);
std::string nfc(std::string_view text);

std::string to_utf8(std::u32string_view text);

}  // namespace longshot
