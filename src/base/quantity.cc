#include "base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace longshot {
namespace {

std::string scaled(double value, double step, const char* const* units) {
  int u = 0;
  while (std::abs(value) >= step && units[u + 1]) value /= step, ++u;
  const int decimals = u == 0 || std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, units[u]);
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::clamp(seconds + 0.5, 0.0, 1e15));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB", nullptr};
  return scaled(bytes, 1024, kUnits);
}

std::string count_text(double count) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", nullptr};
  return scaled(count, 1000, kUnits);
}

}  // namespace longshot
