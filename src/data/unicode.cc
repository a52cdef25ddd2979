#include "data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace longshot {
namespace {

constexpr uint32_t kCodePoints = 0x110000, kReplacement = 0xFFFD;

CharClass class_of(uint32_t c) {
  if ((c >= 0x09 && c <= 0x0D) || c == 0x20 || is_wide_space(c)) return CharClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    case UTF8PROC_CATEGORY_MN:
      return CharClass::kNonspacingMark;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return CharClass::kPunctuation;
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return CharClass::kControl;
    default:
      return CharClass::kOther;
  }
}

int combining_class(char32_t c) {
  return c < 0x300 ? 0 : utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

void decompose(uint32_t c, std::u32string& out) {
  if (c < 0xC0) {
    out += static_cast<char32_t>(c);
    return;
  }
  std::array<utf8proc_int32_t, 16> parts;
  int boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                         UTF8PROC_DECOMPOSE, &boundary);
  require(n > 0 && static_cast<size_t>(n) <= parts.size(), "U+{:04X} decomposes into {} characters", c, n);
  out.append(parts.begin(), parts.begin() + n);
}

std::u32string composed(std::u32string_view text) {
  std::vector<utf8proc_int32_t> points(text.begin(), text.end());
  const auto size = utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                             static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  require(size >= 0, "utf8proc: {}", utf8proc_errmsg(size));
  return {points.begin(), points.begin() + size};
}

}  // namespace

// One byte for every code point: twice as fast as asking the library each time.
CharClass char_class(uint32_t code_point) {
  static const std::vector<CharClass> table = [] {
    std::vector<CharClass> classes(kCodePoints);
    for (uint32_t c = 0; c < kCodePoints; ++c) classes[c] = class_of(c);
    return classes;
  }();
  return code_point < kCodePoints ? table[code_point] : CharClass::kOther;
}

void append_lower(uint32_t c, std::u32string& out) {
  if (c < 0x80) {
    out += static_cast<char32_t>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {  // I with a dot: the one character of two
    out += U"i\u0307";
  } else {
    out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

std::u32string nfd(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  const char *p = text.data(), *end = p + text.size();
  while (p < end) {
    const CodePoint c = decode_utf8(p, end);
    decompose(c.value == kInvalidCodePoint ? kReplacement : c.value, out);
    p += c.length;
  }
  for (size_t i = 0; i < out.size();) {
    size_t run = i;
    while (run < out.size() && combining_class(out[run]) != 0) ++run;
    std::stable_sort(out.begin() + static_cast<ptrdiff_t>(i), out.begin() + static_cast<ptrdiff_t>(run),
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    i = run + 1;
  }
  return out;
}

std::string nfc(std::string_view text) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<signed char>(c) >= 0; })) return std::string(text);
  std::u32string out;
  const std::u32string apart = nfd(text);
  for (std::u32string_view rest = apart; !rest.empty();) {
    // utf8proc 2.8 drops U+11A7 behind a Hangul syllable as if it were no vowel. It composes with nothing: text may be cut there.
    const size_t end = std::min(rest.find(U'\u11A7'), rest.size());
    out += composed(rest.substr(0, end));
    if (end < rest.size()) out += rest[end];
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return to_utf8(out);
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(c, out);
  return out;
}

}  // namespace longshot
