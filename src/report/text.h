// Text on its way into HTML, SVG, URLs and CSV.
#pragma once
#include <string>
#include <string_view>

namespace longshot {

std::string escape_html(std::string_view text);       // also safe inside "attributes"; control characters are dropped
std::string escape_url(std::string_view text);        // every byte but letters, digits and -._~ as %XX
size_t text_width(std::string_view utf8);             // code points
std::string method_title(std::string_view position);  // "alibi" -> "ALiBi"

}  // namespace longshot
