// A chart, described once and drawn three ways: inline SVG (svg.h), Chart.js (page.js reads to_json), gnuplot
// (figures.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/results.h"

namespace longshot {

struct ChartPoint {
  double x = 0, y = 0;
  OptionalNumber low{}, high{};  // the seeds' spread
};

struct Series {
  std::string label;     // one entry of the legend
  int colour = 0;        // of kPalette; the same method has the same one everywhere
  int dash = 0;          // 0 solid, 1 dashed, 2 dotted, 3 dash-dotted
  bool overlay = false;  // hidden until asked for: the paper's curves
  std::vector<ChartPoint> points{};
};

struct Axis {
  std::string label;
  bool log = false;
  std::vector<double> ticks{};  // empty: chosen from the range
};

struct Mark {  // a vertical line, e.g. the training length
  double x = 0;
  std::string label;
};

struct Chart {
  enum class Kind { kLines, kBars };
  std::string id;  // file name of the figure, anchor in the page
  std::string title{}, note{};
  Kind kind = Kind::kLines;
  Axis x{}, y{};
  std::vector<std::string> categories{};  // kBars: what the points' x = 0, 1, 2, .. stand for
  std::vector<Series> series{};
  std::vector<Mark> marks{};

  bool empty() const;
  Json to_json() const;
};

// Okabe and Ito's colours, told apart by colour-blind readers; yellow replaced by grey, which shows on white.
struct PaletteEntry {
  const char* light;
  const char* dark;
};
inline constexpr PaletteEntry kPalette[] = {{"#0072b2", "#4db3f0"}, {"#d55e00", "#ff8a3d"}, {"#009e73", "#35cda1"},
                                            {"#b0558a", "#e79bc4"}, {"#c28400", "#f0b429"}, {"#3a9fdc", "#8fd0ff"},
                                            {"#6b6b6b", "#b5b5b5"}};
inline constexpr int kPaletteSize = static_cast<int>(std::size(kPalette));
inline constexpr int kGrey = kPaletteSize - 1;

// The range that holds every point, its spread and the marks; log axes see positive values only.
struct Range2 {
  double x_least = 0, x_most = 1, y_least = 0, y_most = 1;
};
Range2 range_of(const Chart& chart, bool with_overlay);

// Round numbers inside [least, most]: steps of 1, 2 or 5, or on a log axis of some width a few in each
// decade.
std::vector<double> ticks_between(double least, double most, bool log);
std::string tick_text(double value);  // "64", "1024", "0.05", "1e+06"

}  // namespace longshot
