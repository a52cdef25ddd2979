#include "base/toml.h"

#include <algorithm>

#include "base/error.h"

namespace longshot {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr int64_t kMostDots = 5000;

}  // namespace

toml::table parse_toml(const std::string& text, const std::string& origin) {
  // toml++ limits the depth of lists and tables, not that of dotted keys: a.a.a. .. = 1 is as deep as it has dots.
  const auto dots = std::ranges::count(text, '.');
  require_usage(dots <= kMostDots, "{}: {} dots are more than the {} that a file of options may have", origin, dots,
                kMostDots);
  try {
    return toml::parse(text, origin);
  } catch (const toml::parse_error& e) {
    fail_usage("{}:{}: {}", origin, e.source().begin.line, e.description());
  }
}

toml::table read_toml(const fs::path& path) { return parse_toml(read_text(path, kMostBytes), path.string()); }

}  // namespace longshot
