// Records: one JSON object a line, appended. Everything that is reported later is read from them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace longshot {

using Json = nlohmann::ordered_json;

// Parses; a failure names the origin and the place.
Json parse_json(std::string_view text, const std::string& origin);
Json read_json(const fs::path& path);
void write_json(const fs::path& path, const Json& value);  // atomically, indented

void append_record(const fs::path& path, const Json& record);
// All whole lines; a last line cut short by a crash is left out.
std::vector<Json> read_records(const fs::path& path);

}  // namespace longshot
