// A line of .jsonl.
#pragma once
#include <string>
#include <string_view>

namespace longshot {

// The text of the string member `field` of the JSON object in `line`; `origin` is for messages.
std::string json_text(std::string_view line, const std::string& field, const std::string& origin);

}  // namespace longshot
