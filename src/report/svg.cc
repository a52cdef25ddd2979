#include "report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/text.h"

namespace longshot {
namespace {

constexpr double kWidth = 640, kHeight = 380, kLeft = 62, kRight = 14, kTop = 16, kBottom = 48;

// From data to the SVG's units.
struct Scale {
  double least, most, from, to;
  bool log;
  double operator()(double v) const {
    const double t = log ? std::log(v / least) / std::log(most / least) : (v - least) / (most - least);
    return from + t * (to - from);
  }
};

bool drawable(const ChartPoint& p, const Chart& chart) {
  return std::isfinite(p.x) && std::isfinite(p.y) && !(chart.x.log && p.x <= 0) && !(chart.y.log && p.y <= 0);
}

std::string point_text(const Chart& chart, const Series& s, const ChartPoint& p) {
  const std::string at = chart.kind == Chart::Kind::kBars ? chart.categories[static_cast<size_t>(p.x)] : tick_text(p.x);
  std::string text = fmt::format("{}, {}: {:.4g}", s.label, at, p.y);
  if (p.low && p.high) text += fmt::format(" ({:.4g} to {:.4g} over seeds)", *p.low, *p.high);
  return text;
}

const char* dash_array(int dash) {
  constexpr const char* kDashes[] = {"", "7 5", "2 4", "9 4 2 4"};
  return kDashes[static_cast<size_t>(dash) % std::size(kDashes)];
}

// Circle, square, triangle, diamond: a second sign besides colour.
std::string marker(int shape, double x, double y) {
  switch (shape % 4) {
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"6.4\" height=\"6.4\"", x - 3.2, y - 3.2);
    case 2:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l4 7h-8z\"", x, y - 4.2);
    case 3:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l4.4 4.4l-4.4 4.4l-4.4 -4.4z\"", x, y - 4.4);
    default:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.4\"", x, y);
  }
}

std::string lines_svg(const Chart& chart, const Series& s, const Scale& x, const Scale& y) {
  std::string line, upper, lower, dots;
  const bool few = s.points.size() <= 40;
  for (const ChartPoint& p : s.points) {
    if (!drawable(p, chart)) continue;
    line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", x(p.x), y(p.y));
    if (p.low && p.high && !(chart.y.log && *p.low <= 0)) {
      upper += fmt::format("{}{:.1f} {:.1f}", upper.empty() ? "M" : "L", x(p.x), y(*p.high));
      lower = fmt::format("L{:.1f} {:.1f}", x(p.x), y(*p.low)) + lower;
    }
    if (few && !s.overlay)
      dots +=
          fmt::format("{}><title>{}</title>{}", marker(s.colour, x(p.x), y(p.y)), escape_html(point_text(chart, s, p)),
                      s.colour % 4 == 0   ? "</circle>"
                      : s.colour % 4 == 1 ? "</rect>"
                                          : "</path>");
  }
  std::string out;
  if (!upper.empty()) out += fmt::format("<path class=\"band\" d=\"{}{}Z\"/>", upper, lower);
  if (!line.empty())
    out += fmt::format("<path class=\"line\" stroke-dasharray=\"{}\" d=\"{}\"/>", dash_array(s.dash), line);
  return out + dots;
}

std::string bars_svg(const Chart& chart, size_t index, const Scale& x, const Scale& y) {
  const Series& s = chart.series[index];
  const auto count = static_cast<double>(chart.series.size());
  const double slot = 0.76 * (x(1) - x(0)) / count;
  std::string out;
  for (const ChartPoint& p : s.points) {
    if (!drawable(p, chart)) continue;
    const double left = x(p.x) + (static_cast<double>(index) - count / 2) * slot;
    const double top = std::min(y(p.y), y(0)), height = std::abs(y(p.y) - y(0));
    out += fmt::format(
        "<rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"><title>{}</title></rect>"
        "<text class=\"value\" x=\"{:.1f}\" y=\"{:.1f}\">{:.2f}</text>",
        left, top, 0.92 * slot, height, escape_html(point_text(chart, s, p)), left + 0.46 * slot, top - 4, p.y);
  }
  return out;
}

std::string axes_svg(const Chart& chart, const Range2& r, const Scale& x, const Scale& y) {
  std::string out;
  for (const double tick : ticks_between(r.y_least, r.y_most, chart.y.log))
    out += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text class=\"tick end\" x=\"{:.1f}\" "
        "y=\"{:.1f}\">{}</text>",
        kLeft, y(tick), kWidth - kRight, kLeft - 7, y(tick) + 4, tick_text(tick));
  if (chart.kind == Chart::Kind::kBars) {
    for (size_t c = 0; c < chart.categories.size(); ++c)
      out += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x(static_cast<double>(c)),
                         kHeight - kBottom + 18, escape_html(chart.categories[c]));
  } else {
    const auto ticks = chart.x.ticks.empty() ? ticks_between(r.x_least, r.x_most, chart.x.log) : chart.x.ticks;
    double last = -1e9;
    for (const double tick : ticks) {
      if (tick < r.x_least || tick > r.x_most) continue;
      out += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", x(tick), kTop, kHeight - kBottom);
      const double half = 4.0 * static_cast<double>(tick_text(tick).size());
      if (x(tick) - half < last) continue;  // would touch the label before
      last = x(tick) + half + 4;
      out += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x(tick), kHeight - kBottom + 18,
                         tick_text(tick));
    }
  }
  out += fmt::format("<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", (kLeft + kWidth - kRight) / 2,
                     kHeight - 8, escape_html(chart.x.label));
  out += fmt::format("<text class=\"name\" transform=\"translate(14 {:.1f}) rotate(-90)\">{}</text>",
                     (kTop + kHeight - kBottom) / 2, escape_html(chart.y.label));
  for (const Mark& mark : chart.marks)
    out += fmt::format(
        "<path class=\"mark\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/><text class=\"tick start\" x=\"{3:.1f}\" "
        "y=\"{4:.1f}\">{5}</text>",
        x(mark.x), kTop, kHeight - kBottom, x(mark.x) + 5, kTop + 11, escape_html(mark.label));
  return out;
}

std::string slope_text(double slope) {
  const double inverse = 1 / slope;
  return std::abs(inverse - std::round(inverse)) < 1e-4 * inverse && inverse < 1e6 ? fmt::format("1/{:.0f}", inverse)
                                                                                   : fmt::format("{:.4g}", slope);
}

}  // namespace

std::string chart_svg(const Chart& chart) {
  const Range2 r = range_of(chart, false);
  const Scale x{r.x_least, r.x_most, kLeft, kWidth - kRight, chart.x.log};
  const Scale y{r.y_least, r.y_most, kHeight - kBottom, kTop, chart.y.log};
  std::string out = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\"><clipPath "
      "id=\"clip-{3}\"><rect x=\"{4}\" "
      "y=\"{5}\" width=\"{6}\" height=\"{7}\"/></clipPath>",
      kWidth, kHeight, escape_html(chart.title), escape_html(chart.id), kLeft, kTop - 12, kWidth - kLeft - kRight + 6,
      kHeight - kTop - kBottom + 12);
  out += axes_svg(chart, r, x, y);
  out += fmt::format("<g clip-path=\"url(#clip-{})\">", escape_html(chart.id));
  for (size_t i = chart.series.size(); i-- > 0;) {  // the first one on top
    const Series& s = chart.series[i];
    out += fmt::format("<g data-series=\"{}\" class=\"c{}{}\">{}</g>", i, s.colour, s.overlay ? " off" : "",
                       chart.kind == Chart::Kind::kBars ? bars_svg(chart, i, x, y) : lines_svg(chart, s, x, y));
  }
  return out + "</g></svg>";
}

std::string bias_matrices_svg(const Biases& biases, int64_t tokens) {
  constexpr double kCell = 4, kGap = 22, kLabel = 20;
  constexpr int64_t kMostCells = 24, kAcross = 8;
  const int64_t stride = (tokens + kMostCells - 1) / kMostCells, size = (tokens + stride - 1) / stride;
  const double side = kCell * static_cast<double>(size);
  const int64_t heads = std::min(biases.heads, kMostBiasMatrices);
  const int64_t columns = std::min(heads, kAcross), rows = (heads + kAcross - 1) / kAcross;
  const double width = static_cast<double>(columns) * (side + kGap) - kGap;
  std::string out = fmt::format(
      "<svg class=\"biases\" viewBox=\"0 0 {:.0f} {:.0f}\" style=\"max-width:{:.0f}px\" role=\"img\" "
      "aria-label=\"bias matrices\">",
      width, static_cast<double>(rows) * (side + kLabel + 8), 1.5 * width);
  for (int64_t h = 0; h < heads; ++h) {
    const auto head = static_cast<size_t>(h);
    const auto bias_at = [&](int64_t cell) { return biases.at(head, static_cast<size_t>(cell * stride)); };
    double largest = bias_at(0);
    for (int64_t d = 1; d < size; ++d) largest = std::max(largest, bias_at(d));
    out += fmt::format(
        "<g transform=\"translate({:.0f} {:.0f})\"><text class=\"tick start\" x=\"0\" y=\"13\">{}{}</text>",
        static_cast<double>(h % kAcross) * (side + kGap), static_cast<double>(h / kAcross) * (side + kLabel + 8), h + 1,
        biases.slopes.empty() ? "" : ": m = " + slope_text(biases.slopes[head]));
    out += fmt::format("<rect class=\"frame\" x=\"0\" y=\"{}\" width=\"{}\" height=\"{}\"/>", kLabel, side, side);
    // All keys at one distance lie on one diagonal and have one shade: a path of size - d cells.
    for (int64_t d = 0; d < size; ++d) {
      std::string path = fmt::format("M0 {}", kLabel + kCell * static_cast<double>(d));
      for (int64_t j = 0; j + d < size; ++j) path += fmt::format("h{0}v{0}h-{0}zm{0} {0}", kCell);
      out += fmt::format(
          "<path class=\"cell\" fill-opacity=\"{:.3f}\" d=\"{}\"><title>head {}, distance {}: bias "
          "{:.4g}</title></path>",
          std::exp(bias_at(d) - largest), path, h + 1, d * stride, bias_at(d));
    }
    out += "</g>";
  }
  return out + "</svg>";
}

}  // namespace longshot
