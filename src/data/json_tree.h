// JSON whose objects find a member in logarithmic time: for vocabularies, which are objects of 50,000 members
// and more.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace longshot {

using JsonTree = nlohmann::json;

inline JsonTree parse_tree(std::string_view text, const std::string& origin) {
  try {
    return JsonTree::parse(text);
  } catch (const JsonTree::exception& e) {
    fail("{}: not valid JSON ({})", origin, e.what());
  }
}

}  // namespace longshot
