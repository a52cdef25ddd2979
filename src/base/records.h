// Records: one JSON object a line, appended. Everything that is reported later is read from them.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"

namespace longshot {

// A field that may be unknown, and what a known one may be.
using OptionalNumber = std::optional<double>;
using OptionalCount = std::optional<int64_t>;

struct Range {
  double least, most;
};
struct CountRange {
  int64_t least, most;
};
inline constexpr int64_t kMostCount = int64_t{1} << 53;  // beyond it a JSON number is no longer exact everywhere
inline constexpr Range kAny{-1e300, 1e300}, kNotNegative{0, 1e300};
inline constexpr CountRange kAnyCount{0, kMostCount}, kPositiveCount{1, kMostCount}, kSeed{0, INT64_MAX};

// Of a file of records, all lines together.
inline constexpr JsonLimits kRecordLimits{.bytes = size_t{1} << 30, .values = 32'000'000};

// Adds a line. A last line that a crash cut short is dropped first.
void append_record(const fs::path& path, const Json& record);

// All lines. A last one that was cut short is left out; any other that is not an object is an error that names it.
std::vector<Json> read_records(const fs::path& path, const JsonLimits& limits = kRecordLimits);

}  // namespace longshot
