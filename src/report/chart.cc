#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace longshot {
namespace {

void widen(double& least, double& most, double value, bool log, bool& any) {
  if (!std::isfinite(value) || (log && value <= 0)) return;
  least = any ? std::min(least, value) : value;
  most = any ? std::max(most, value) : value;
  any = true;
}

// Room around the data, a share of the width of the axis; never of no width.
void add_room(double& least, double& most, bool log, double share) {
  if (log) {
    const double factor = most > least ? std::pow(most / least, share) : 1.1;
    least /= factor, most *= factor;
  } else {
    const double room = most > least ? share * (most - least) : std::max(1e-9, 0.1 * std::abs(most));
    least -= room, most += room;
  }
}

Json number_or_null(const OptionalNumber& value) { return value ? Json(*value) : Json(); }

Json axis_json(const Axis& axis) { return {{"label", axis.label}, {"log", axis.log}, {"ticks", axis.ticks}}; }

}  // namespace

bool Chart::empty() const {
  return std::all_of(series.begin(), series.end(), [](const Series& s) { return s.points.empty() || s.overlay; });
}

Json Chart::to_json() const {
  Json all = Json::array();
  for (const Series& s : series) {
    Json points = Json::array();
    for (const ChartPoint& p : s.points)
      points.push_back(p.low || p.high ? Json{p.x, p.y, number_or_null(p.low), number_or_null(p.high)}
                                       : Json{p.x, p.y});
    all.push_back(
        {{"label", s.label}, {"colour", s.colour}, {"dash", s.dash}, {"overlay", s.overlay}, {"points", points}});
  }
  Json lines = Json::array();
  for (const Mark& mark : marks) lines.push_back({{"x", mark.x}, {"label", mark.label}});
  return {{"id", id},
          {"kind", kind == Kind::kBars ? "bars" : "lines"},
          {"x", axis_json(x)},
          {"y", axis_json(y)},
          {"categories", categories},
          {"series", all},
          {"marks", lines}};
}

Range2 range_of(const Chart& chart, bool with_overlay) {
  Range2 r;
  bool any_x = false, any_y = false;
  for (const Series& s : chart.series) {
    if (s.overlay && !with_overlay) continue;
    for (const ChartPoint& p : s.points) {
      widen(r.x_least, r.x_most, p.x, chart.x.log, any_x);
      for (const double y : {p.y, p.low.value_or(p.y), p.high.value_or(p.y)})
        widen(r.y_least, r.y_most, y, chart.y.log, any_y);
    }
  }
  if (chart.kind == Chart::Kind::kBars) {
    r.x_least = -0.5, r.x_most = static_cast<double>(chart.categories.size()) - 0.5;
    r.y_least = std::min(r.y_least, 0.0), r.y_most = std::max(r.y_most, 0.0);
    add_room(r.y_least, r.y_most, false, 0.08);
    if (r.y_least > -0.1 * r.y_most) r.y_least = 0;
    return r;
  }
  for (const Mark& mark : chart.marks) widen(r.x_least, r.x_most, mark.x, chart.x.log, any_x);
  if (chart.x.log && !any_x) r.x_least = 1, r.x_most = 10;
  if (chart.y.log && !any_y) r.y_least = 1, r.y_most = 10;
  add_room(r.x_least, r.x_most, chart.x.log, 0.03);
  add_room(r.y_least, r.y_most, chart.y.log, 0.06);
  return r;
}

std::vector<double> ticks_between(double least, double most, bool log) {
  std::vector<double> ticks;
  if (!(most > least) || !std::isfinite(most - least)) return {least};
  if (log && most / least > 2.5) {
    const double decades = std::log10(most / least);
    const std::vector<double> digits = decades > 4     ? std::vector<double>{1}
                                       : decades > 1.3 ? std::vector<double>{1, 2, 5}
                                                       : std::vector<double>{1, 1.5, 2, 3, 4, 5, 7};
    for (double power = std::floor(std::log10(least)); power <= std::log10(most); ++power)
      for (const double digit : digits) {
        const double tick = digit * std::pow(10, power);
        if (tick >= least && tick <= most) ticks.push_back(tick);
      }
    return ticks;
  }
  // The smallest of 1, 2, 5, 10 times a power of ten that gives at most 7 steps.
  const double rough = (most - least) / 7;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double digit : {5.0, 2.0, 1.0})
    if (digit * power >= rough) step = digit * power;
  const double first = std::ceil(least / step);
  for (int k = 0; k <= 7; ++k)  // counted, since first + 1 may round to first
    if (const double tick = (first + k) * step; tick <= most) ticks.push_back(tick);
  return ticks;
}

std::string tick_text(double value) {
  if (std::abs(value) < 1e-12) return "0";
  return fmt::format("{:.6g}", value);
}

}  // namespace longshot
