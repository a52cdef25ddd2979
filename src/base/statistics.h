// Means and their errors.
#pragma once
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

namespace longshot {

inline double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// sqrt(sum (v - mean)^2 / (n - 1)); 0 for fewer than two values.
inline double standard_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

// Of a mean of independent values; none for fewer than two.
inline std::optional<double> standard_error(const std::vector<double>& values) {
  if (values.size() < 2) return std::nullopt;
  return standard_deviation(values) / std::sqrt(static_cast<double>(values.size()));
}

}  // namespace longshot
