#include "report/svg.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "report/text.h"

namespace longshot {
namespace {

constexpr double kWidth = 520, kLinesHeight = 290, kTop = 14, kBottom = 46, kRight = 14;
constexpr double kTickSize = 11;                // of text, as in page.css
constexpr double kBar = 13, kBetweenBars = 11;  // thickness of a bar, room between categories
constexpr size_t kLongestName = 26;             // characters of a category

// From data to the SVG's units.
struct Scale {
  double least, most, from, to;
  bool log;
  double operator()(double v) const {
    const double t = log ? std::log(v / least) / std::log(most / least) : (v - least) / (most - least);
    return from + t * (to - from);
  }
};

// Where the axes lie: x from left to right, y from bottom to top. Of bars, x is the value and y the category.
struct Frame {
  double left, right, top, bottom;
  Scale x, y;
};

// An upper bound for the fonts of page.css.
double text_units(std::string_view text, double size) { return 0.64 * size * static_cast<double>(text_width(text)); }

bool is_bars(const Chart& chart) { return chart.kind == Chart::Kind::kBars; }

std::vector<double> value_ticks(const Chart& chart, const Range2& r) {
  return ticks_between(r.y_least, r.y_most, chart.y.log);
}

Frame frame_of(const Chart& chart, const Range2& r) {
  const double bottom = chart_svg_height(chart) - kBottom;
  if (is_bars(chart)) {
    double names = 0;
    for (const std::string& name : chart.categories)
      names = std::max(names, text_units(shortened(name, kLongestName), kTickSize));
    const double left = names + 14, right = kWidth - 46;  // the number of the longest bar stands behind it
    return {left,
            right,
            kTop,
            bottom,
            {r.y_least, r.y_most, left, right, false},
            {r.x_least, r.x_most, kTop, bottom, false}};
  }
  double widest = 0;
  for (const double tick : value_ticks(chart, r)) widest = std::max(widest, text_units(tick_text(tick), kTickSize));
  const double left = widest + 32, right = kWidth - kRight;
  return {left,
          right,
          kTop,
          bottom,
          {r.x_least, r.x_most, left, right, chart.x.log},
          {r.y_least, r.y_most, bottom, kTop, chart.y.log}};
}

bool drawable(const ChartPoint& p, const Chart& chart) {
  return std::isfinite(p.x) && std::isfinite(p.y) && !(chart.x.log && p.x <= 0) && !(chart.y.log && p.y <= 0);
}

bool drawable_spread(const ChartPoint& p, const Chart& chart) {
  return p.has_spread() && !(chart.y.log && *p.low <= 0);
}

std::string point_text(const Chart& chart, const Series& s, const ChartPoint& p) {
  const std::string at = is_bars(chart) ? chart.categories[static_cast<size_t>(p.x)] : tick_text(p.x);
  std::string text = fmt::format("{}, {}: {:.4g}", s.label, at, p.y);
  if (p.has_spread()) text += fmt::format(" ({:.4g} to {:.4g}, {})", *p.low, *p.high, s.spread);
  return text;
}

std::string dash_attribute(const Series& s) {
  return s.drawn_dash() == 0 ? ""
                             : fmt::format(" stroke-dasharray=\"{:g}\"", fmt::join(dash_pattern(s.drawn_dash()), " "));
}

// Around (x, y); the order is that of PaletteEntry::marker.
std::string marker(int kind, double x, double y, const std::string& title) {
  constexpr const char* kShapes[] = {"m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
                                     "m-3.2 -3.2h6.4v6.4h-6.4z",
                                     "m0 -4.3l4 7h-8z",
                                     "m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z",
                                     "m0 4.3l4 -7h-8z",
                                     "m-3.3 -3.3l6.6 6.6m0 -6.6l-6.6 6.6"};
  constexpr const char* kPlus = "m-4.4 0h8.8m-4.4 -4.4v8.8";
  const int shapes = static_cast<int>(std::size(kShapes));
  return fmt::format("<path class=\"dot{}\" d=\"M{:.1f} {:.1f}{}\">{}</path>", kind < shapes ? "" : " open", x, y,
                     kind == kMarkers - 1 ? kPlus : kShapes[kind % shapes],
                     title.empty() ? "" : "<title>" + escape_html(title) + "</title>");
}

std::string whisker(double from, double to, double at, bool lying) {
  return lying
             ? fmt::format("<path class=\"whisker\" d=\"M{0:.1f} {2:.1f}v6m0 -3H{1:.1f}m0 -3v6\"/>", from, to, at - 3)
             : fmt::format("<path class=\"whisker\" d=\"M{2:.1f} {0:.1f}h6m-3 0V{1:.1f}m-3 0h6\"/>", from, to, at - 3);
}

std::string lines_svg(const Chart& chart, size_t index, const Frame& frame) {
  const Series& s = chart.series[index];
  const auto& [x, y] = std::tie(frame.x, frame.y);
  const Marked marked = marked_points(chart, index);
  std::string line, upper, lower, dots, whiskers;
  for (size_t i = 0; i < s.points.size(); ++i) {
    const ChartPoint& p = s.points[i];
    if (!drawable(p, chart)) continue;
    line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", x(p.x), y(p.y));
    if (drawable_spread(p, chart)) {
      upper += fmt::format("{}{:.1f} {:.1f}", upper.empty() ? "M" : "L", x(p.x), y(*p.high));
      lower = fmt::format("L{:.1f} {:.1f}", x(p.x), y(*p.low)) + lower;
      if (!s.has_band()) whiskers += whisker(y(*p.low), y(*p.high), x(p.x), false);
    }
    if (marked.at(i) && !s.overlay) dots += marker(s.marker(), x(p.x), y(p.y), point_text(chart, s, p));
  }
  std::string out = whiskers;
  if (s.has_band()) out += fmt::format("<path class=\"band\" d=\"{}{}Z\"/>", upper, lower);
  if (!line.empty()) out += fmt::format("<path class=\"line\"{} d=\"{}\"/>", dash_attribute(s), line);
  return out + dots;
}

std::string bars_svg(const Chart& chart, size_t index, const Frame& frame) {
  const Series& s = chart.series[index];
  const double middle = (static_cast<double>(index) - (static_cast<double>(chart.series.size()) - 1) / 2) * kBar;
  std::string out;
  for (const ChartPoint& p : s.points) {
    if (!drawable(p, chart)) continue;
    const double at = frame.y(p.x) + middle, end = frame.x(p.y), zero = frame.x(0);
    out += fmt::format(
        "<rect class=\"bar{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{}</title></rect>",
        s.colour == kGrey ? " open" : "", std::min(end, zero), at - kBar / 2 + 0.5, std::abs(end - zero), kBar - 1,
        escape_html(point_text(chart, s, p)));
    double behind = end;
    if (drawable_spread(p, chart)) {
      out += whisker(frame.x(*p.low), frame.x(*p.high), at, true);
      behind = frame.x(*p.high);
    }
    out += fmt::format("<text class=\"value start\" x=\"{:.1f}\" y=\"{:.1f}\">{:.2f}</text>",
                       std::max(behind, zero) + 5, at + 4, p.y);
  }
  return out;
}

// Ticks across, at the bottom; a label that would touch the one before is left out.
std::string ticks_below(const Frame& frame, const std::vector<double>& ticks) {
  std::string out;
  double last = -INFINITY;
  for (const double tick : ticks) {
    const double x = frame.x(tick);
    if (x < frame.left - 0.5 || x > frame.right + 0.5) continue;
    out += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", x, frame.top, frame.bottom);
    const double half = text_units(tick_text(tick), kTickSize) / 2;
    if (x - half < last) continue;
    last = x + half + 4;
    out +=
        fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x, frame.bottom + 16, tick_text(tick));
  }
  return out;
}

std::string ticks_beside(const Frame& frame, const std::vector<double>& ticks) {
  std::string out;
  double last = INFINITY;
  for (const double tick : ticks) {
    const double y = frame.y(tick);
    out += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", frame.left, y, frame.right);
    if (last - y < kTickSize + 3) continue;
    last = y;
    out += fmt::format("<text class=\"tick end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", frame.left - 6, y + 4,
                       tick_text(tick));
  }
  return out;
}

std::string names_beside(const Chart& chart, const Frame& frame) {
  std::string out;
  for (size_t c = 0; c < chart.categories.size(); ++c)
    out += fmt::format("<text class=\"tick end\" x=\"{:.1f}\" y=\"{:.1f}\"><title>{}</title>{}</text>", frame.left - 6,
                       frame.y(static_cast<double>(c)) + 4, escape_html(chart.categories[c]),
                       escape_html(shortened(chart.categories[c], kLongestName)));
  return out;
}

std::string axes_svg(const Chart& chart, const Range2& r, const Frame& frame) {
  const double middle = (frame.left + frame.right) / 2, name_line = frame.bottom + kBottom - 8;
  if (is_bars(chart))
    return ticks_below(frame, value_ticks(chart, r)) + names_beside(chart, frame) +
           fmt::format("<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", middle, name_line,
                       escape_html(shortened(chart.y.label, 50)));
  std::string out = ticks_beside(frame, value_ticks(chart, r));
  out += ticks_below(frame, chart.x.ticks.empty() ? ticks_between(r.x_least, r.x_most, chart.x.log) : chart.x.ticks);
  out += fmt::format("<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", middle, name_line,
                     escape_html(chart.x.label));
  out += fmt::format("<text class=\"name\" transform=\"translate(13 {:.1f}) rotate(-90)\">{}</text>",
                     (frame.top + frame.bottom) / 2, escape_html(chart.y.label));
  double line = frame.top + kTickSize;
  for (const Mark& mark : chart.marks) {
    const double x = frame.x(mark.x);
    const bool fits = x + 5 + text_units(mark.label, kTickSize) < frame.right;
    out += fmt::format(
        "<path class=\"mark\" d=\"M{:.1f} {:.1f}V{:.1f}\"/><text class=\"tick {}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
        x, frame.top, frame.bottom, fits ? "start" : "end", fits ? x + 5 : x - 5, line, escape_html(mark.label));
    line += kTickSize + 3;
  }
  return out;
}

std::string slope_text(double slope) {
  const double inverse = 1 / slope;
  return std::abs(inverse - std::round(inverse)) < 1e-4 * inverse && inverse < 1e6 ? fmt::format("1/{:.0f}", inverse)
                                                                                   : fmt::format("{:.3g}", slope);
}

// All keys at one distance lie on one diagonal and have one shade: a path of size - d cells.
std::string head_svg(const Biases& biases, size_t head, int64_t tokens) {
  constexpr double kSide = 96, kLabel = 18, kAcross = 116;
  constexpr int64_t kMostCells = 24;
  const int64_t stride = (tokens + kMostCells - 1) / kMostCells, size = (tokens + stride - 1) / stride;
  const double cell = kSide / static_cast<double>(size);
  const auto bias_at = [&](int64_t d) { return biases.at(head, static_cast<size_t>(d * stride)); };
  double largest = bias_at(0);
  for (int64_t d = 1; d < size; ++d) largest = std::max(largest, bias_at(d));
  std::string out = fmt::format(
      "<svg class=\"head\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\"><text class=\"start\" x=\"0\" "
      "y=\"12\">{2}{3}</text><rect class=\"frame\" x=\"0.5\" y=\"{4:g}\" width=\"{5:g}\" height=\"{5:g}\"/>",
      kAcross, kSide + kLabel + 2, head + 1, biases.slopes.empty() ? "" : ": m = " + slope_text(biases.slopes[head]),
      kLabel, kSide);
  for (int64_t d = 0; d < size; ++d) {
    std::string path = fmt::format("M0.5 {:.2f}", kLabel + cell * static_cast<double>(d));
    for (int64_t j = 0; j + d < size; ++j) path += fmt::format("h{0:.2f}v{0:.2f}h-{0:.2f}zm{0:.2f} {0:.2f}", cell);
    out += fmt::format(
        "<path class=\"cell\" fill-opacity=\"{:.3f}\" d=\"{}\"><title>head {}, distance {}: bias {:.4g}</title></path>",
        std::exp(bias_at(d) - largest), path, head + 1, d * stride, bias_at(d));
  }
  return out + "</svg>";
}

}  // namespace

double chart_svg_height(const Chart& chart) {
  if (!is_bars(chart)) return kLinesHeight;
  const double category = kBar * static_cast<double>(std::max<size_t>(1, chart.series.size())) + kBetweenBars;
  return kTop + category * static_cast<double>(chart.categories.size()) + kBottom;
}

std::string chart_svg(const Chart& chart) {
  const Range2 r = range_of(chart, false);
  const Frame frame = frame_of(chart, r);
  std::string out = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {0:g} {1:g}\" role=\"img\" aria-label=\"{2}\"><clipPath "
      "id=\"clip-{3}\"><rect "
      "x=\"{4:.1f}\" y=\"{5:.1f}\" width=\"{6:.1f}\" height=\"{7:.1f}\"/></clipPath>",
      kWidth, chart_svg_height(chart), escape_html(chart.in_words()), escape_html(chart.id), frame.left - 5,
      frame.top - 5, kWidth - frame.left + 5, frame.bottom - frame.top + 10);
  out += axes_svg(chart, r, frame);
  out += fmt::format("<g clip-path=\"url(#clip-{})\">", escape_html(chart.id));
  for (size_t i = chart.series.size(); i-- > 0;) {  // the first one on top
    const Series& s = chart.series[i];
    out += fmt::format("<g data-series=\"{}\" class=\"c{}{}\">{}</g>", i, s.colour, s.overlay ? " off" : "",
                       is_bars(chart) ? bars_svg(chart, i, frame) : lines_svg(chart, i, frame));
  }
  return out + "</g></svg>";
}

std::string key_svg(const Chart& chart, const Series& s) {
  std::string out = "<svg class=\"key\" viewBox=\"0 0 32 12\" width=\"32\" height=\"12\" aria-hidden=\"true\">";
  if (is_bars(chart)) {
    out += fmt::format("<rect class=\"bar{}\" x=\"8\" y=\"1\" width=\"16\" height=\"10\"/>",
                       s.colour == kGrey ? " open" : "");
  } else {
    out += fmt::format("<path class=\"line\"{} d=\"M1 6H31\"/>", dash_attribute(s));
    if (!s.overlay) out += marker(s.marker(), 16, 6, "");
  }
  return out + "</svg>";
}

std::string bias_matrices_html(const Biases& biases, int64_t tokens) {
  const int64_t heads = std::min(biases.heads, kMostBiasMatrices);
  std::string out = fmt::format(
      "<div class=\"heads\" role=\"img\" aria-label=\"{} triangles of queries and keys, one per head{}\">", heads,
      biases.slopes.empty() ? ""
                            : fmt::format(", with slopes from {} to {}", slope_text(biases.slopes[0]),
                                          slope_text(biases.slopes[static_cast<size_t>(heads - 1)])));
  for (size_t h = 0; h < static_cast<size_t>(heads); ++h) out += head_svg(biases, h, tokens);
  return out + "</div>";
}

}  // namespace longshot
