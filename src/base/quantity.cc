#include "base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/error.h"

namespace longshot {
namespace {

std::string scaled(double value, double step, const char* const* units) {
  int u = 0;
  while (std::abs(value) >= step && units[u + 1]) value /= step, ++u;
  const int decimals = u == 0 || std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, units[u]);
}

struct Unit {
  std::string_view name;
  double value;
};

double parse(const std::string& option, const std::string& text, std::span<const Unit> units) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  for (const Unit& unit : units) {
    if (error == std::errc() && value > 0 && std::isfinite(value) && unit.name == rest) return value * unit.value;
  }
  std::string names;
  for (const Unit& unit : units) names += fmt::format("{}{}", names.empty() ? "" : ", ", unit.name);
  fail_usage("--{}: '{}' is not a positive number with one of the units {}", option, text, names);
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

double parse_rate(const std::string& option, const std::string& text) {
  static constexpr Unit kUnits[] = {{"bit", 1 / 8.0},   {"kbit", 1e3 / 8}, {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8},
                                    {"Tbit", 1e12 / 8}, {"kB", 1e3},       {"MB", 1e6},       {"GB", 1e9}};
  return parse(option, text, kUnits);
}

double parse_duration(const std::string& option, const std::string& text) {
  static constexpr Unit kUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  return parse(option, text, kUnits);
}

}  // namespace longshot
