// Whitespace. Bytes that are not valid UTF-8 are letters of a word of their own kind: never lost, never an error.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/utf8.h"

namespace longshot {

// Whitespace as Python's str.split() knows it, by first byte.
enum class Space : uint8_t { kNo, kYes, kPerhaps };  // kPerhaps: the lead byte of a longer one
constexpr std::array<Space, 256> kSpaceOfByte = [] {
  std::array<Space, 256> table{};
  for (int c = 0x09; c <= 0x0D; ++c) table[static_cast<size_t>(c)] = Space::kYes;
  for (int c = 0x1C; c <= 0x20; ++c) table[static_cast<size_t>(c)] = Space::kYes;
  for (const int c : {0xC2, 0xE1, 0xE2, 0xE3}) table[static_cast<size_t>(c)] = Space::kPerhaps;
  return table;
}();

inline Space space_of(char c) { return kSpaceOfByte[static_cast<unsigned char>(c)]; }

constexpr bool is_wide_space(uint32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

// Bytes of the whitespace character at `p`; 0 if there is none. REQUIRES: p < end.
inline uint32_t space_length(const char* p, const char* end) {
  const Space space = space_of(*p);
  if (space != Space::kPerhaps) return space == Space::kYes;
  const CodePoint c = decode_utf8(p, end);
  return is_wide_space(c.value) ? c.length : 0;
}

// Bit i: byte i of the 64 at `p` is at most ' ' or above 127. Only such a byte can be whitespace or begin it.
inline uint64_t maybe_space_mask(const char* p) {
  constexpr uint64_t kOnes = 0x0101010101010101, kTops = 0x80 * kOnes;
  uint64_t mask = 0;
  for (int i = 0; i < 64; i += 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, p + i, 8);
    const uint64_t above_space = (bytes & ~kTops) + (0x7F - ' ') * kOnes;  // the top bit of each byte; no carries
    const uint64_t maybe = (~above_space | bytes) & kTops;
    mask |= (maybe * 0x0002040810204081) >> 56 << i;  // the eight top bits, side by side
  }
  return mask;
}

// In order: word(a run of non-whitespace), space(the place of a whitespace character).
template <class Word, class Space>
void scan_words(std::string_view text, Word&& word, Space&& space) {
  const char* const end = text.data() + text.size();
  const char* start = text.data();  // of the current word
  for (const char* block = start; block < end; block += 64) {
    uint64_t mask = 0;
    if (end - block >= 64) {
      mask = maybe_space_mask(block);
    } else {
      char rest[64];
      std::memset(rest, 'x', sizeof rest);
      std::memcpy(rest, block, static_cast<size_t>(end - block));
      mask = maybe_space_mask(rest);
    }
    for (; mask != 0; mask &= mask - 1) {
      const char* const p = block + std::countr_zero(mask);
      if (p < start) continue;  // inside a space of several bytes
      const uint32_t length = space_length(p, end);
      if (length == 0) continue;
      if (p > start) word(std::string_view(start, static_cast<size_t>(p - start)));
      space(p);
      start = p + length;
    }
  }
  if (start < end) word(std::string_view(start, static_cast<size_t>(end - start)));
}

// Runs of non-whitespace.
inline uint64_t count_words(std::string_view text) {
  uint64_t words = 0;
  scan_words(
      text, [&](std::string_view) { ++words; }, [](const char*) {});
  return words;
}

// Where the text behind its last space or newline begins; 0 where it has none.
inline size_t cut_behind_space(std::string_view text) {
  const size_t at = text.find_last_of(" \n");
  return at == std::string_view::npos ? 0 : at + 1;
}

// What in a text is not UTF-8.
struct InvalidUtf8 {
  uint64_t bytes = 0;  // that are part of no character
  size_t first = 0;    // where the first of them is
};

inline InvalidUtf8 find_invalid_utf8(std::string_view text) {
  InvalidUtf8 found;
  const char *const begin = text.data(), *const end = begin + text.size();
  const auto is_ascii = [](char c) { return static_cast<signed char>(c) >= 0; };
  const auto is_tail = [](char c) { return static_cast<signed char>(c) < -64; };
  for (const char* p = begin; p < end;) {
    uint64_t eight = 0;
    while (end - p >= 8 && (std::memcpy(&eight, p, 8), (eight & 0x8080808080808080) == 0)) p += 8;
    while (p < end && is_ascii(*p)) ++p;
    while (end - p >= 3) {  // most others: two bytes, or three of no special case
      const auto lead = static_cast<unsigned char>(*p);
      if (lead >= 0xC2 && lead < 0xE0 && is_tail(p[1])) {
        p += 2;
      } else if (lead > 0xE0 && lead < 0xED && is_tail(p[1]) && is_tail(p[2])) {
        p += 3;
      } else {
        break;
      }
    }
    if (p == end || is_ascii(*p)) continue;
    const CodePoint c = decode_utf8(p, end);
    if (c.value == kInvalidCodePoint && found.bytes++ == 0) found.first = static_cast<size_t>(p - begin);
    p += c.length;
  }
  return found;
}

// Each such byte becomes U+FFFD.
inline std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  for (const char *p = text.data(), *const end = p + text.size(); p < end;) {
    const CodePoint c = decode_utf8(p, end);
    if (c.value == kInvalidCodePoint) {
      append_utf8(0xFFFD, out);
    } else {
      out.append(p, c.length);
    }
    p += c.length;
  }
  return out;
}

}  // namespace longshot
