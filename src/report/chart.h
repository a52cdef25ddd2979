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
  OptionalNumber low{}, high{};  // the spread; Series::spread says of what

  bool has_spread() const { return low && high && *low < *high; }
};

struct Series {
  std::string label;                 // one entry of the legend
  int colour = 0;                    // of kPalette; the same method has the same one everywhere
  int dash = 0;                      // counted from the palette's on: solid, dashed, dotted, dash-dotted
  bool overlay = false;              // hidden until asked for: the paper's curves
  std::string spread = "the seeds";  // what the points' low and high span
  std::vector<ChartPoint> points{};

  int marker() const;      // of kPalette
  int drawn_dash() const;  // 0 solid, .. 3 dash-dotted
  bool has_band() const;   // lines: two points or more with a spread; one alone gets a whisker
};

struct Axis {
  std::string label;
  bool log = false;
  std::vector<double> ticks{};     // empty: chosen from the range
  OptionalNumber least{}, most{};  // empty: chosen from the points
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
  OptionalNumber fit_from{};  // points left of it do not count for the y range and may run out of the picture

  bool empty() const;
  std::string caption() const;   // the note, and what is to be said of what is drawn
  std::string in_words() const;  // for who cannot see it: axes, and each series from its first to its last point
  Json to_json() const;
};

// What tells a series from the others: colour, marker and dash. Six colours, far apart for the colour-blind too
// (a test simulates them), come twice: solid with filled markers, dashed with open ones. Grey is for the paper's bars.
struct PaletteEntry {
  const char* light;
  const char* dark;
  int marker;  // circle, square, triangle, diamond, triangle down, x; 6 more: the same open, + for x
  int dash;
};
inline constexpr PaletteEntry kPalette[] = {
    {"#0051ae", "#139efa", 0, 0}, {"#d76000", "#ee7b29", 1, 0},  {"#30a667", "#5ddfa1", 2, 0},
    {"#8e2f7c", "#c666b6", 3, 0}, {"#684900", "#f5d76e", 4, 0},  {"#7a93cd", "#abbeff", 5, 0},
    {"#0051ae", "#139efa", 6, 1}, {"#d76000", "#ee7b29", 7, 1},  {"#30a667", "#5ddfa1", 8, 1},
    {"#8e2f7c", "#c666b6", 9, 1}, {"#684900", "#f5d76e", 10, 1}, {"#7a93cd", "#abbeff", 11, 1},
    {"#767676", "#9a9a9a", 0, 0}};
inline constexpr int kPaletteSize = static_cast<int>(std::size(kPalette));
inline constexpr int kGrey = kPaletteSize - 1;
inline constexpr int kMarkers = 12;

// Lines and gaps of a dash, in the units of the SVG; none: solid.
std::vector<double> dash_pattern(int dash);

// Which points of a series get a marker: all of a short one, some eight of a long one, at other places than its
// neighbours'.
struct Marked {
  size_t first = 0, every = 1;
  bool at(size_t point) const { return point >= first && (point - first) % every == 0; }
};
Marked marked_points(const Chart& chart, size_t series);

// The range that holds every point, its spread and the marks, or what the axes say; log axes see positive values only.
struct Range2 {
  double x_least = 0, x_most = 1, y_least = 0, y_most = 1;
};
Range2 range_of(const Chart& chart, bool with_overlay);

// Charts of one quantity get one y range, so that neighbours can be compared by eye; unless they are ten-fold apart,
// which their notes then say.
void share_y_range(std::vector<Chart>& charts);

// The first steps of a training do not use up the height: its y range follows what comes after a tenth of the x axis.
void leave_out_start(Chart& chart);

// Round numbers inside [least, most]: steps of 1, 2 or 5, or on a log axis of some width a few in each
// decade.
std::vector<double> ticks_between(double least, double most, bool log);
std::string tick_text(double value);  // "64", "1048576", "0.05", "1e+07"

}  // namespace longshot
