#include "base/printable.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace longshot {
namespace {

bool is_control(uint32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

// Marks and overrides of direction: text behind them is shown where it does not stand.
bool turns_direction(uint32_t c) {
  return c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text, bool lines) {
  std::string out;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const CodePoint c = decode_utf8(p, end);
    if (c.value == kInvalidCodePoint) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(*p));
    } else if (lines && (c.value == '\n' || c.value == '\t')) {
      out += *p;
    } else if (c.value == '\n') {
      out += "\\n";
    } else if (is_control(c.value) && c.length == 1) {
      out += fmt::format("\\x{:02x}", c.value);
    } else if (is_control(c.value) || turns_direction(c.value)) {
      out += fmt::format("\\u{:04x}", c.value);
    } else {
      out.append(p, c.length);
    }
    p += c.length;
  }
  return out;
}

std::string printable_json(std::string_view json) {
  std::string out;
  for (const char *p = json.data(), *end = p + json.size(); p < end;) {
    const CodePoint c = decode_utf8(p, end);
    const bool control = c.value >= 0x7F && is_control(c.value);  // those below are line ends between values
    if (control || turns_direction(c.value)) {
      out += fmt::format("\\u{:04x}", c.value);
    } else {
      out.append(p, c.length);
    }
    p += c.length;
  }
  return out;
}

std::string shown(std::string_view name) {
  constexpr size_t kMost = 80;
  if (name.size() <= kMost) return printable(name);
  size_t cut = kMost;
  while (cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xC0) == 0x80) --cut;  // between two characters
  return printable(name.substr(0, cut)) + "...";
}

}  // namespace longshot
