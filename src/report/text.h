// Text on its way into HTML, SVG, URLs, CSV and LaTeX.
#pragma once
#include <string>
#include <string_view>

namespace longshot {

std::string escape_html(std::string_view text);   // also safe inside "attributes"; control characters are dropped
std::string escape_url(std::string_view text);    // every byte but letters, digits and -._~ as %XX
std::string escape_latex(std::string_view text);  // shows as it is in LaTeX's text; control characters are dropped
std::string csv_field(std::string_view text);     // quoted where RFC 4180 asks for it
std::string csv_words(std::string_view text);     // that; what a spreadsheet would take for a formula is made text
size_t text_width(std::string_view utf8);         // code points
std::string shortened(const std::string& utf8, size_t most);  // at most so many code points, an ellipsis the last
std::string method_title(std::string_view position);          // "alibi" -> "ALiBi"

}  // namespace longshot
