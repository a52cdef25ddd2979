#include "base/records.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace longshot {
namespace {

// A line without its end: whole all the same if it is an object, since no part of an object is one.
bool is_whole(std::string_view line, const std::string& origin) {
  try {
    return parse_json(line, origin).is_object();
  } catch (const Error&) {
    return false;
  }
}

size_t count_values(const Json& value) {
  size_t count = 1;
  if (value.is_structured()) {
    for (const Json& part : value) count += count_values(part);
  }
  return count;
}

}  // namespace

void append_record(const fs::path& path, const Json& record) {
  std::string line = dump_json(record) + "\n";
  if (fs::exists(path)) {
    const MappedFile file(path);
    const size_t end = file.text().rfind('\n') + 1;
    const std::string_view rest = file.text().substr(end);
    if (!rest.empty() && is_whole(rest, path.string())) {
      line.insert(0, "\n");
    } else if (!rest.empty()) {
      OutputFile(path, end).close();
    }
  }
  append_text(path, line);
}

std::vector<Json> read_records(const fs::path& path, const JsonLimits& limits) {
  const std::string text = read_text(path, limits.bytes);
  std::vector<Json> records;
  JsonLimits left = limits;
  size_t number = 0;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string origin = fmt::format("{}, line {}", path.string(), number);
    if (end == text.size() && !is_whole(line, origin)) break;
    Json record = parse_json(line, origin, left);
    require(record.is_object(), "{}: not an object", origin);
    left.values -= count_values(record);
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace longshot
