// JSON: the one reader of every file that holds it, and the one writer. Reading takes time and memory in
// proportion to the text, whatever the text is; what is refused is refused with the file and the place.
// Who looks into a value includes <nlohmann/json.hpp>, which is large; to pass one on, this is enough.
#pragma once
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/files.h"

namespace longshot {

using Json = nlohmann::ordered_json;  // members in the order written; finding one walks over them
using JsonTree = nlohmann::json;      // members sorted, found in logarithmic time: vocabularies, tensor tables

// A value read takes less than this many bytes of memory for each byte of its text ("{},{},.." is among the
// worst), and less than twice that while it is built.
inline constexpr double kJsonMemory = 40;

// What is beyond them is refused; so is an object with a key twice.
struct JsonLimits {
  size_t bytes = size_t{256} << 20;
  size_t values = 8'000'000;  // objects, lists, their members and elements: Gemma's tokenizer.json has 2,300,000
  int depth = 64;             // objects and lists inside each other
};

// `origin` is what errors call the text: a file, or a file and a line.
Json parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits = {});
JsonTree parse_json_tree(std::string_view text, const std::string& origin, const JsonLimits& limits = {});
Json read_json(const fs::path& path);

// Text that is not UTF-8 is written with U+FFFD in place of what is not; numbers that are not finite as null.
std::string dump_json(const Json& value, int indent = -1);
std::string dump_json(const JsonTree& value, int indent = -1);
void write_json(const fs::path& path, const Json& value);  // atomically, indented

}  // namespace longshot
