// Records: one JSON object a line, appended. Everything that is reported later is read from them.
#pragma once
#include <vector>

#include "base/json.h"

namespace longshot {

// Of a file of records, all lines together.
inline constexpr JsonLimits kRecordLimits{.bytes = size_t{1} << 30, .values = 32'000'000};

// Adds a line. A last line that a crash cut short is dropped first.
void append_record(const fs::path& path, const Json& record);

// All lines. A last one that was cut short is left out; any other that is not an object is an error that names it.
std::vector<Json> read_records(const fs::path& path, const JsonLimits& limits = kRecordLimits);

}  // namespace longshot
