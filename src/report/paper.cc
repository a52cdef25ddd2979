// Figures of the paper (arXiv 2108.12409v2): WikiText-103, 247M parameters, one V100.
#include "report/paper.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace longshot {
namespace {

constexpr std::array<const char*, 4> kMethods{"alibi", "sinusoidal", "rotary", "t5"};
using PerMethod = std::array<double, 4>;  // in the order of kMethods; 0: out of memory

struct CurveRow {
  int64_t train_length, length;
  PerMethod perplexity;
};

// Validation perplexity, non-overlapping, from Tables 2, 3 and 4 (some rows left out).
constexpr CurveRow kCurves[] = {
    {512, 512, {19.73, 20.05, 20.07, 19.65}},     {512, 532, {19.61, 19.91, 19.98, 19.53}},
    {512, 572, {19.46, 19.95, 19.83, 19.36}},     {512, 612, {19.38, 20.59, 19.81, 19.27}},
    {512, 712, {19.14, 24.86, 19.79, 19.10}},     {512, 812, {18.99, 30.82, 20.17, 18.94}},
    {512, 1012, {18.73, 43.54, 21.37, 18.79}},    {512, 1212, {18.67, 58.01, 23.02, 18.87}},
    {512, 1512, {18.52, 76.23, 25.99, 18.91}},    {512, 2512, {18.41, 132.41, 31.58, 20.41}},
    {512, 3512, {18.40, 178.97, 35.54, 22.91}},   {512, 5512, {18.36, 240.44, 43.14, 29.54}},
    {512, 7512, {18.33, 293.02, 51.12, 39.29}},   {512, 10512, {18.32, 341.53, 60.77, 52.95}},
    {512, 12512, {18.31, 373.17, 69.70, 64.94}},  {512, 15512, {18.31, 406.01, 79.25, 0}},
    {1024, 1024, {18.66, 19.34, 19.33, 18.80}},   {1024, 1074, {18.49, 19.19, 19.19, 18.65}},
    {1024, 1124, {18.46, 19.26, 19.18, 18.62}},   {1024, 1224, {18.40, 20.54, 19.38, 18.58}},
    {1024, 1324, {18.33, 23.13, 19.96, 18.52}},   {1024, 1524, {18.22, 29.82, 22.59, 18.42}},
    {1024, 1824, {18.08, 42.23, 27.63, 18.30}},   {1024, 2024, {18.05, 51.09, 31.17, 18.34}},
    {1024, 3024, {17.92, 96.46, 35.67, 18.62}},   {1024, 4024, {17.95, 144.00, 44.30, 19.44}},
    {1024, 6024, {18.01, 214.02, 54.78, 21.76}},  {1024, 8024, {17.96, 284.88, 64.91, 25.79}},
    {1024, 10024, {17.97, 337.48, 77.70, 29.54}}, {1024, 12024, {18.01, 375.95, 87.51, 33.35}},
    {1024, 14024, {18.01, 403.52, 96.10, 0}},     {1024, 16024, {17.98, 453.32, 106.99, 0}},
    {3072, 3072, {17.60, 18.67, 18.57, 18.01}},   {3072, 3092, {17.55, 18.60, 18.48, 17.92}},
    {3072, 3272, {17.59, 18.87, 18.55, 17.93}},   {3072, 3472, {17.54, 20.55, 18.52, 17.95}},
    {3072, 3672, {17.48, 23.04, 18.49, 17.87}},   {3072, 3872, {17.41, 25.85, 18.40, 17.82}},
    {3072, 4072, {17.48, 28.59, 18.59, 17.88}},   {3072, 5072, {17.33, 45.53, 18.80, 17.76}},
    {3072, 6072, {17.26, 65.01, 19.50, 17.68}},   {3072, 8072, {17.30, 102.74, 21.60, 18.06}},
    {3072, 10072, {17.28, 133.68, 23.21, 18.37}}, {3072, 12072, {17.24, 169.55, 26.70, 18.93}},
    {3072, 14072, {17.22, 203.86, 32.21, 0}},     {3072, 16072, {17.22, 231.29, 34.51, 0}},
};

struct CostRow {
  int64_t length;
  PerMethod train_words_per_second, eval_words_per_second, memory_gigabytes;
};

// Table 1: batched, at the training length.
constexpr CostRow kCosts[] = {
    {512, {28.3e3, 28.5e3, 20.0e3, 14.4e3}, {85.8e3, 82.1e3, 43.4e3, 21.8e3}, {15.3, 15.3, 17.8, 16.9}},
    {1024, {25.8e3, 26.0e3, 17.7e3, 13.0e3}, {76.4e3, 77.8e3, 39.4e3, 20.2e3}, {19.3, 19.2, 22.8, 20.9}},
    {3072, {15.5e3, 15.3e3, 11.5e3, 4.3e3}, {42.2e3, 42.4e3, 29.5e3, 4.9e3}, {15.2, 15.1, 17.8, 15.9}},
};

// The row whose length is nearest to `length`, measured as a ratio.
int64_t nearest_length(int64_t length) {
  const auto distance = [&](const CostRow& row) {
    return std::abs(std::log(static_cast<double>(row.length) / static_cast<double>(length)));
  };
  return std::min_element(std::begin(kCosts), std::end(kCosts),
                          [&](const CostRow& a, const CostRow& b) { return distance(a) < distance(b); })
      ->length;
}

size_t method_index(const std::string& position) {
  return static_cast<size_t>(std::find(kMethods.begin(), kMethods.end(), position) - kMethods.begin());
}

}  // namespace

std::optional<PaperCurve> paper_curve(const std::string& position, int64_t train_length) {
  const size_t method = method_index(position);
  if (method == kMethods.size()) return std::nullopt;
  PaperCurve curve{.train_length = nearest_length(train_length), .points = {}};
  for (const CurveRow& row : kCurves)
    if (row.train_length == curve.train_length && row.perplexity[method] > 0)
      curve.points.push_back({row.length, row.perplexity[method]});
  return curve;
}

std::optional<PaperCost> paper_cost(const std::string& position, int64_t train_length) {
  const size_t method = method_index(position);
  if (method == kMethods.size()) return std::nullopt;
  const int64_t length = nearest_length(train_length);
  const CostRow& row =
      *std::find_if(std::begin(kCosts), std::end(kCosts), [&](const CostRow& r) { return r.length == length; });
  return PaperCost{.train_length = length,
                   .train_speed = row.train_words_per_second[method],
                   .eval_speed = row.eval_words_per_second[method],
                   .memory = row.memory_gigabytes[method] * 1e9};
}

}  // namespace longshot
