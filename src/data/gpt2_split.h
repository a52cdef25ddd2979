// GPT-2's cut of text into pieces, which
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// describes. A byte that is not UTF-8 counts as one character, neither letter, number nor space.
#pragma once
#include <cstring>
#include <string_view>

#include "data/unicode.h"

namespace longshot::gpt2 {

enum class Kind : uint8_t { kOther, kLetter, kNumber, kSpace };

struct Char {
  Kind kind;
  uint32_t length;
};

inline Kind kind_of(uint32_t code_point) {
  switch (char_class(code_point)) {
    case CharClass::kLetter:
      return Kind::kLetter;
    case CharClass::kNumber:
      return Kind::kNumber;
    case CharClass::kSpace:
      return Kind::kSpace;
    default:
      return Kind::kOther;
  }
}

constexpr std::array<Kind, 128> kKindOfAscii = [] {
  std::array<Kind, 128> table{};
  for (size_t c = 'a'; c <= 'z'; ++c) table[c] = table[c - 32] = Kind::kLetter;
  for (size_t c = '0'; c <= '9'; ++c) table[c] = Kind::kNumber;
  for (const size_t c : {9, 10, 11, 12, 13, 32}) table[c] = Kind::kSpace;
  return table;
}();

inline Char char_at(const char* p, const char* end) {
  const auto byte = static_cast<unsigned char>(*p);
  if (byte < 128) [[likely]]
    return {kKindOfAscii[byte], 1};
  const CodePoint c = decode_utf8(p, end);
  return {kind_of(c.value), c.length};
}

// Length of the contraction at `p`, which is an apostrophe; 0 if it is none.
inline size_t contraction(const char* p, const char* end) {
  if (end - p < 2) return 0;
  switch (p[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return end - p >= 3 && p[2] == 'e' ? 3 : 0;
    case 'l':
      return end - p >= 3 && p[2] == 'l' ? 3 : 0;
    default:
      return 0;
  }
}

// Where the piece that begins at `p` ends. REQUIRES: p < end.
inline const char* piece_end(const char* p, const char* end) {
  if (*p == '\'') {
    if (const size_t length = contraction(p, end)) return p + length;
  }
  Char c = char_at(p, end);
  if (c.kind == Kind::kSpace) {
    const Char next = *p == ' ' && p + 1 < end ? char_at(p + 1, end) : Char{Kind::kSpace, 0};
    if (next.kind == Kind::kSpace) {
      const char *q = p, *last = p;
      while (q < end && (c = char_at(q, end)).kind == Kind::kSpace) last = q, q += c.length;
      // The last space of a run goes with what follows it, unless it is alone.
      return q == end || last == p ? q : last;
    }
    ++p;
    c = next;
  }
  const Kind kind = c.kind;
  do {
    p += c.length;
  } while (p < end && (c = char_at(p, end)).kind == kind);
  return p;
}

// The last place where a character of the kinds allowed is followed by an ASCII space (`blank`: by U+0020): nothing spans
// it. 0 where there is none.
template <class Allowed>
size_t last_cut(std::string_view text, Allowed allowed, bool blank = false) {
  for (size_t at = text.size(); at-- > 1;) {
    const auto next = static_cast<unsigned char>(text[at]);
    if (next >= 128 || kKindOfAscii[next] != Kind::kSpace || (blank && next != ' ')) continue;
    size_t begin = at - 1;
    while (begin > 0 && at - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    const CodePoint before = decode_utf8(text.data() + begin, text.data() + at);
    if (begin + before.length == at && allowed(kind_of(before.value))) return at;
  }
  return 0;
}

}  // namespace longshot::gpt2
