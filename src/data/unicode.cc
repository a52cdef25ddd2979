#include "data/unicode.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "data/unicode_tables.h"

namespace longshot {
namespace {

constexpr uint32_t kCodePoints = 0x110000, kReplacement = 0xFFFD;

// One byte for every code point.
class ByteTable {
 public:
  explicit ByteTable(const std::vector<CodePointRun>& runs) : values_(kCodePoints) {
    for (size_t i = 0; i < runs.size(); ++i) {
      const uint32_t end = i + 1 < runs.size() ? runs[i + 1].first : kCodePoints;
      std::fill(values_.begin() + runs[i].first, values_.begin() + end, static_cast<uint8_t>(runs[i].value));
    }
  }
  uint8_t operator[](uint32_t code_point) const { return code_point < kCodePoints ? values_[code_point] : 0; }

 private:
  std::vector<uint8_t> values_;
};

int combining_class(uint32_t c) {
  static const ByteTable table(kCombiningRuns);
  return table[c];
}

// Hangul syllables are made by rule (The Unicode Standard, 3.12): S = SBase + (L * 21 + V) * 28 + T.
constexpr uint32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7, kLs = 19, kVs = 21, kTs = 28;

void decompose(uint32_t c, std::u32string& out) {
  static const auto table = [] {
    std::unordered_map<uint32_t, Decomposition> map;
    for (const Decomposition& d : kDecompositions) map.emplace(d.whole, d);
    return map;
  }();
  if (c >= kS && c < kS + kLs * kVs * kTs) {
    const uint32_t s = c - kS;
    out += static_cast<char32_t>(kL + s / (kVs * kTs));
    out += static_cast<char32_t>(kV + s / kTs % kVs);
    if (s % kTs) out += static_cast<char32_t>(kT + s % kTs);
  } else if (const auto d = table.find(c); d != table.end()) {
    decompose(d->second.first, out);
    if (d->second.second) decompose(d->second.second, out);
  } else {
    out += static_cast<char32_t>(c);
  }
}

// 0 where the two do not compose.
uint32_t compose(uint32_t a, uint32_t b) {
  static const auto table = [] {
    std::unordered_map<uint64_t, uint32_t> map;
    for (const Decomposition& d : kCompositions) map.emplace(uint64_t{d.first} << 32 | d.second, d.whole);
    return map;
  }();
  if (a >= kL && a < kL + kLs && b >= kV && b < kV + kVs) return kS + ((a - kL) * kVs + b - kV) * kTs;
  if (a >= kS && a < kS + kLs * kVs * kTs && (a - kS) % kTs == 0 && b > kT && b < kT + kTs) return a + b - kT;
  const auto found = table.find(uint64_t{a} << 32 | b);
  return found == table.end() ? 0 : found->second;
}

}  // namespace

CharClass char_class(uint32_t code_point) {
  static const ByteTable table(kClassRuns);
  return static_cast<CharClass>(table[code_point]);
}

void append_lower(uint32_t c, std::u32string& out) {
  if (c < 0x80) {
    out += static_cast<char32_t>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return;
  }
  if (c == 0x130) {  // I with a dot: the one character of two
    out += U"i\u0307";
    return;
  }
  const auto next = std::ranges::upper_bound(kLowerStretches, c, {}, &LowerStretch::first);
  if (next != kLowerStretches.begin()) {
    const LowerStretch& s = *(next - 1);
    if (c <= s.last && (c - s.first) % s.step == 0) c = s.lower + (c - s.first);
  }
  out += static_cast<char32_t>(c);
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
  size_t starter = std::u32string::npos;  // the last character of class 0
  int last = 0;                           // class of the character before, since the starter
  for (const char32_t c : nfd(text)) {
    const int now = combining_class(c);
    const bool adjacent = starter != std::u32string::npos && starter + 1 == out.size();
    if (starter != std::u32string::npos && (adjacent || (last < now && last != 0))) {
      if (const uint32_t whole = compose(out[starter], c)) {
        out[starter] = static_cast<char32_t>(whole);
        continue;
      }
    }
    if (now == 0) starter = out.size();
    last = now;
    out += c;
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
