#include "report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace longshot {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

std::string escape_latex(std::string_view text) {
  const std::pair<std::string_view, std::string_view> marks[] = {{"\\", "\\textbackslash{}"},
                                                                 {"~", "\\textasciitilde{}"},
                                                                 {"^", "\\textasciicircum{}"},
                                                                 {"<", "\\textless{}"},
                                                                 {">", "\\textgreater{}"},
                                                                 {"|", "\\textbar{}"},
                                                                 {"\"", "''"},
                                                                 {"[", "{[}"},  // behind \\ it would begin an option
                                                                 {"]", "{]}"},
                                                                 {"*", "{*}"},
                                                                 {"&", "\\&"},
                                                                 {"%", "\\%"},
                                                                 {"$", "\\$"},
                                                                 {"#", "\\#"},
                                                                 {"_", "\\_"},
                                                                 {"{", "\\{"},
                                                                 {"}", "\\}"},
                                                                 {"\n", " "},
                                                                 {"\t", " "},
                                                                 {"±", "$\\pm$"},
                                                                 {"×", "$\\times$"},
                                                                 {"→", "$\\to$"},
                                                                 {"–", "--"}};
  std::string out;
  while (!text.empty()) {
    const auto* const mark = std::find_if(std::begin(marks), std::end(marks),
                                          [&](const auto& pair) { return text.starts_with(pair.first); });
    if (mark != std::end(marks)) {
      out += mark->second;
      text.remove_prefix(mark->first.size());
      continue;
    }
    if (static_cast<unsigned char>(text[0]) >= 0x20 && text[0] != 0x7f) out += text[0];
    text.remove_prefix(1);
  }
  return out;
}

std::string escape_url(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '-' || c == '.' || c == '_' || c == '~') {
      out += c;
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  return out + "\"";
}

std::string csv_words(std::string_view text) {
  const bool formula = !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
  return csv_field(formula ? "'" + std::string(text) : std::string(text));
}

size_t text_width(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string shortened(const std::string& utf8, size_t most) {
  if (text_width(utf8) <= most) return utf8;
  size_t end = 0;
  for (size_t seen = 0; end < utf8.size(); ++end)
    if ((utf8[end] & 0xC0) != 0x80 && ++seen == most) break;
  return utf8.substr(0, end) + "…";
}

std::string method_title(std::string_view position) {
  if (position == "alibi") return "ALiBi";
  if (position == "t5") return "T5 bias";
  if (position == "none") return "No position";
  std::string title(position);
  if (!title.empty()) title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
  return title;
}

}  // namespace longshot
