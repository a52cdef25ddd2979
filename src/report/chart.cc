#include "report/chart.h"

#include <fmt/ranges.h>

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

Json axis_json(const Axis& axis, double least, double most) {
  return {{"label", axis.label}, {"log", axis.log}, {"ticks", axis.ticks}, {"least", least}, {"most", most}};
}

bool counts(const Chart& chart, const ChartPoint& p) { return !chart.fit_from || p.x >= *chart.fit_from; }

// "6.02 at 64".
std::string point_words(const Chart& chart, const ChartPoint& p) {
  return chart.kind == Chart::Kind::kBars ? fmt::format("{} {:.3g}", chart.categories[static_cast<size_t>(p.x)], p.y)
                                          : fmt::format("{:.4g} at {}", p.y, tick_text(p.x));
}

}  // namespace

int Series::marker() const { return kPalette[colour].marker; }

int Series::drawn_dash() const { return (kPalette[colour].dash + dash) % 4; }

bool Series::has_band() const {
  return std::count_if(points.begin(), points.end(), [](const ChartPoint& p) { return p.has_spread(); }) > 1;
}

std::vector<double> dash_pattern(int dash) {
  switch (dash % 4) {
    case 1:
      return {7, 4};
    case 2:
      return {2, 3};
    case 3:
      return {9, 3, 2, 3};
    default:
      return {};
  }
}

Marked marked_points(const Chart& chart, size_t series) {
  const size_t points = chart.series[series].points.size();
  if (points <= 40) return {};
  const size_t every = points / 8;
  return {.first = every * (series % kMarkers) / kMarkers, .every = every};
}

bool Chart::empty() const {
  return std::all_of(series.begin(), series.end(), [](const Series& s) { return s.points.empty() || s.overlay; });
}

std::string Chart::caption() const {
  int bands = 0, whiskers = 0;
  std::vector<std::string> spreads;
  for (const Series& s : series) {
    if (s.overlay || std::none_of(s.points.begin(), s.points.end(), [](const auto& p) { return p.has_spread(); }))
      continue;
    ++(kind == Kind::kLines && s.has_band() ? bands : whiskers);
    if (std::find(spreads.begin(), spreads.end(), s.spread) == spreads.end()) spreads.push_back(s.spread);
  }
  std::string text = note;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : " ") + more; };
  if (!spreads.empty())
    add(fmt::format("{} {}.",
                    bands > 0 && whiskers > 0 ? "Bands and whiskers span"
                    : bands > 0               ? "Bands span"
                                              : "Whiskers span",
                    fmt::join(spreads, " or ")));
  const Range2 r = range_of(*this, false);
  const bool cut = std::any_of(series.begin(), series.end(), [&](const Series& s) {
    return !s.overlay &&
           std::any_of(s.points.begin(), s.points.end(), [&](const ChartPoint& p) { return p.y > r.y_most; });
  });
  if (fit_from && cut) add(fmt::format("The start, above {:.3g}, runs out of the picture.", r.y_most));
  return text;
}

std::string Chart::in_words() const {
  const bool bars = kind == Kind::kBars;
  std::string text = bars ? fmt::format("{}. Bars: {}.", title, y.label)
                          : fmt::format("{}. Lines: {} against {}.", title, y.label, x.label);
  for (const Series& s : series) {
    if (s.overlay || s.points.empty()) continue;
    text += fmt::format(" {}: {}", s.label, point_words(*this, s.points.front()));
    if (bars) {
      for (size_t i = 1; i < s.points.size(); ++i) text += ", " + point_words(*this, s.points[i]);
    } else if (s.points.size() > 1) {
      text += ", " + point_words(*this, s.points.back());
    }
    text += ".";
  }
  return text;
}

Json Chart::to_json() const {
  Json all = Json::array();
  for (size_t i = 0; i < series.size(); ++i) {
    const Series& s = series[i];
    const Marked marked = marked_points(*this, i);
    Json points = Json::array();
    for (const ChartPoint& p : s.points)
      points.push_back(p.has_spread() ? Json{p.x, p.y, *p.low, *p.high} : Json{p.x, p.y});
    all.push_back({{"label", s.label},
                   {"colour", s.colour},
                   {"marker", s.marker()},
                   {"marked", {marked.first, marked.every}},
                   {"dash", dash_pattern(s.drawn_dash())},
                   {"band", s.has_band()},
                   {"spread", s.spread},
                   {"overlay", s.overlay},
                   {"points", points}});
  }
  Json lines = Json::array();
  for (const Mark& mark : marks) lines.push_back({{"x", mark.x}, {"label", mark.label}});
  const Range2 r = range_of(*this, false);
  return {{"id", id},
          {"kind", kind == Kind::kBars ? "bars" : "lines"},
          {"x", axis_json(x, r.x_least, r.x_most)},
          {"y", axis_json(y, r.y_least, r.y_most)},
          {"categories", categories},
          {"series", all},
          {"marks", lines},
          {"fitFrom", fit_from ? Json(*fit_from) : Json()}};
}

Range2 range_of(const Chart& chart, bool with_overlay) {
  Range2 r;
  bool any_x = false, any_y = false;
  for (const Series& s : chart.series) {
    if (s.overlay && !with_overlay) continue;
    for (const ChartPoint& p : s.points) {
      widen(r.x_least, r.x_most, p.x, chart.x.log, any_x);
      if (!counts(chart, p)) continue;
      for (const double y : {p.y, p.low.value_or(p.y), p.high.value_or(p.y)})
        widen(r.y_least, r.y_most, y, chart.y.log, any_y);
    }
  }
  if (chart.kind == Chart::Kind::kBars) {
    r.x_least = -0.5, r.x_most = static_cast<double>(chart.categories.size()) - 0.5;
    r.y_least = std::min(r.y_least, 0.0), r.y_most = std::max(r.y_most, 0.0);
    add_room(r.y_least, r.y_most, false, 0.08);
    if (r.y_least > -0.1 * r.y_most) r.y_least = 0;
  } else {
    for (const Mark& mark : chart.marks) widen(r.x_least, r.x_most, mark.x, chart.x.log, any_x);
    if (chart.x.log && !any_x) r.x_least = 1, r.x_most = 10;
    if (chart.y.log && !any_y) r.y_least = 1, r.y_most = 10;
    add_room(r.x_least, r.x_most, chart.x.log, 0.03);
    add_room(r.y_least, r.y_most, chart.y.log, 0.06);
  }
  r.y_least = chart.y.least.value_or(r.y_least), r.y_most = chart.y.most.value_or(r.y_most);
  return r;
}

void share_y_range(std::vector<Chart>& charts) {
  for (const Chart& first : std::vector<Chart>(charts)) {
    std::vector<Chart*> same;
    for (Chart& chart : charts)
      if (chart.y.label == first.y.label && chart.y.log == first.y.log && !chart.y.least) same.push_back(&chart);
    if (same.size() < 2) continue;
    double least = INFINITY, most = -INFINITY, smallest_reach = INFINITY, largest_reach = 0;
    for (const Chart* chart : same) {
      const Range2 r = range_of(*chart, false);
      least = std::min(least, r.y_least), most = std::max(most, r.y_most);
      const double reach = std::max(std::abs(r.y_least), std::abs(r.y_most));
      smallest_reach = std::min(smallest_reach, reach), largest_reach = std::max(largest_reach, reach);
    }
    const bool apart = largest_reach > 10 * smallest_reach;
    for (Chart* chart : same) {
      const Range2 r = range_of(*chart, false);
      chart->y.least = apart ? r.y_least : least, chart->y.most = apart ? r.y_most : most;
      if (apart)
        chart->note += (chart->note.empty() ? "" : " ") +
                       std::string("Its y axis is its own: the neighbours' reach is more than ten-fold apart.");
    }
  }
}

void leave_out_start(Chart& chart) {
  double least = INFINITY, most = -INFINITY;
  for (const Series& s : chart.series)
    for (const ChartPoint& p : s.points) least = std::min(least, p.x), most = std::max(most, p.x);
  if (most > least) chart.fit_from = least + 0.1 * (most - least);
}

std::vector<double> ticks_between(double least, double most, bool log) {
  std::vector<double> ticks;
  if (!(most > least) || !std::isfinite(most - least)) return {least};
  if (log && most / least > 2.5) {
    const double decades = std::log10(most / least);
    const std::vector<double> digits = decades > 4     ? std::vector<double>{1}
                                       : decades > 1.3 ? std::vector<double>{1, 2, 5}
                                                       : std::vector<double>{1, 1.5, 2, 3, 4, 5, 7};
    for (int power = static_cast<int>(std::floor(std::log10(least))); power <= std::log10(most); ++power)
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
  return std::abs(value) < 1e7 && value == std::round(value) ? fmt::format("{:.0f}", value)
                                                             : fmt::format("{:.6g}", value);
}

}  // namespace longshot
