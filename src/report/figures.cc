#include "report/figures.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/descriptor.h"
#include "base/error.h"
#include "report/text.h"

namespace longshot {
namespace {

// Single quotes: gnuplot expands nothing inside them; a quote is doubled.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "''";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out + "'";
}

// x y low high, one point a line.
std::string data_block(size_t index, const Series& s) {
  std::string out = fmt::format("$d{} << EOD\n", index);
  for (const ChartPoint& p : s.points)
    out += fmt::format("{:.9g} {:.9g} {:.9g} {:.9g}\n", p.x, p.y, p.low.value_or(p.y), p.high.value_or(p.y));
  return out + "EOD\n";
}

// A tick's label is a format: a percent sign is doubled.
std::string as_format(const std::string& label) {
  std::string out;
  for (const char c : label) out.append(c == '%' ? 2 : 1, c);
  return out;
}

std::string tick_list(const std::vector<std::string>& labels, const std::vector<double>& places) {
  std::string out;
  for (size_t i = 0; i < places.size(); ++i)
    out += fmt::format("{}{} {:.9g}", i > 0 ? ", " : "", quoted(as_format(labels[i])), places[i]);
  return "(" + out + ")";
}

// Runs `program script` in `dir`. Returns "" or what went wrong.
std::string run_in(const fs::path& dir, const std::string& program, const std::string& script) {
  const Descriptor said(::memfd_create("stderr", MFD_CLOEXEC));  // not a file in `dir`: a link may stand in its place
  require(said.get() >= 0, "{}: cannot listen to it: {}", program, std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, said.get(), 2);
  posix_spawn_file_actions_addchdir_np(&actions, dir.c_str());
  std::string name = program, plain = "-d", argument = script;  // -d: without the user's own settings
  char* argv[] = {name.data(), plain.data(), argument.data(), nullptr};
  pid_t pid = 0;
  const int failure = ::posix_spawnp(&pid, name.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return fmt::format("{}: {}", program, std::strerror(failure));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return "";
  char text[300];
  const ssize_t n = ::pread(said.get(), text, sizeof text, 0);
  return fmt::format("{} failed on {}: {}", program, script,
                     std::string_view(text, n > 0 ? static_cast<size_t>(n) : 0));
}

std::string one_line(const std::string& text) {
  std::string out = text;
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return out;
}

std::string ticks_of(const char* axis, const std::vector<double>& ticks) {
  std::vector<std::string> labels;
  for (const double tick : ticks) labels.push_back(tick_text(tick));
  return fmt::format("set {}tics {} noenhanced\n", axis, tick_list(labels, ticks));
}

bool in_left_half(const Chart& chart, const Range2& r, double x) {
  return chart.x.log ? x * x < r.x_least * r.x_most : 2 * x < r.x_least + r.x_most;
}

// In inches. One column of a two-column paper is 3.4 wide. Below the plot stands the key, in as many columns as its
// names leave room for.
struct FigureSize {
  static constexpr double kWidth = 3.4, kRow = 0.135, kAxis = 0.5;  // a row of the key; the x axis with its name
  double height = 0, key = 0;
  int columns = 1;

  explicit FigureSize(const Chart& chart) {
    constexpr double kCharacter = 0.072, kSample = 0.45, kLines = 1.75;
    double widest = kSample, entries = 0;
    for (const Series& s : chart.series)
      if (!s.overlay && !s.points.empty())
        widest = std::max(widest, kSample + kCharacter * static_cast<double>(text_width(s.label))), ++entries;
    columns = std::max(1, static_cast<int>(kWidth / widest));
    key = kRow * std::ceil(entries / columns) + 0.05;
    const double category = 0.07 + 0.11 * static_cast<double>(chart.series.size());
    const bool bars = chart.kind == Chart::Kind::kBars;
    height = key + kAxis + (bars ? category * static_cast<double>(chart.categories.size()) : kLines) + 0.1;
  }
};

std::string line_axes(const Chart& chart, const Range2& r) {
  std::string out = fmt::format(
      "set xlabel {} noenhanced\nset ylabel {} noenhanced\nset xrange [{:.9g}:{:.9g}]\nset yrange [{:.9g}:{:.9g}]\n",
      quoted(chart.x.label), quoted(chart.y.label), r.x_least, r.x_most, r.y_least, r.y_most);
  if (chart.x.log) out += "set logscale x\n";
  if (chart.y.log) out += "set logscale y\n";
  out += ticks_of("y", ticks_between(r.y_least, r.y_most, chart.y.log));
  out += ticks_of("x", chart.x.ticks.empty() ? ticks_between(r.x_least, r.x_most, chart.x.log) : chart.x.ticks);
  for (const Mark& mark : chart.marks)
    out += fmt::format(
        "set arrow from {0:.9g}, graph 0 to {0:.9g}, graph 1 nohead dt (3,3) lw 0.6 lc rgb '#666666'\n"
        "set label {1} at {0:.9g}, graph 0.96 offset {2}0.6,0 {3} tc rgb '#444444' noenhanced\n",
        mark.x, quoted(mark.label), in_left_half(chart, r, mark.x) ? "" : "-",
        in_left_half(chart, r, mark.x) ? "left" : "right");
  return out;
}

// Bars lie: categories from top to bottom.
std::string bar_axes(const Chart& chart, const Range2& r) {
  std::vector<double> places(chart.categories.size());
  std::vector<std::string> names;
  for (size_t c = 0; c < places.size(); ++c) {
    places[c] = static_cast<double>(c);
    names.push_back(shortened(chart.categories[c], 26));
  }
  return fmt::format(
             "set xlabel {} noenhanced\nset xrange [{:.9g}:{:.9g}]\nset yrange [{:.9g}:{:.9g}]\nset ytics {} "
             "noenhanced\n"
             "set grid noytics\n",
             quoted(chart.y.label), r.y_least, r.y_most, r.x_most, r.x_least, tick_list(names, places)) +
         ticks_of("x", ticks_between(r.y_least, r.y_most, false));
}

std::string dash_type(const Series& s) {
  const auto pattern = dash_pattern(s.drawn_dash());
  return pattern.empty() ? "1" : fmt::format("({:g})", fmt::join(pattern, ","));
}

// gnuplot's point types, in the order of PaletteEntry::marker.
int point_type(int marker) {
  constexpr int kTypes[kMarkers] = {7, 5, 9, 13, 11, 2, 6, 4, 8, 12, 10, 1};
  return kTypes[marker];
}

std::vector<std::string> line_plots(const Chart& chart) {
  std::vector<std::string> plots;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    if (s.overlay || s.points.empty()) continue;
    const char* colour = kPalette[s.colour].light;
    if (s.has_band())
      plots.push_back(fmt::format(
          "$d{} using 1:3:4 with filledcurves fs transparent solid 0.16 noborder lc rgb '{}' notitle", i, colour));
    else if (std::any_of(s.points.begin(), s.points.end(), [](const ChartPoint& p) { return p.has_spread(); }))
      plots.push_back(fmt::format("$d{} using 1:2:3:4 with yerrorbars pt 0 lw 0.6 lc rgb '#222222' notitle", i));
    const Marked marked = marked_points(chart, i);
    const std::string look = fmt::format("lw 1.4 lc rgb '{}' dt {}", colour, dash_type(s));
    plots.push_back(fmt::format("$d{} using 1:2 with lines {} notitle", i, look));
    const auto put_points = [&](int type, const char* paint) {
      plots.push_back(fmt::format("$d{} using 1:2 every {}::{} with points pt {} ps point lw 1 lc rgb '{}' notitle", i,
                                  marked.every, marked.first, type, paint));
    };
    const int type = point_type(s.marker());
    if (s.marker() > 5 && s.marker() < kMarkers - 1) put_points(type + 1, "white");  // the line does not cross it
    put_points(type, colour);
    plots.push_back(fmt::format("keyentry with linespoints {} pt {} ps point title {}", look, point_type(s.marker()),
                                quoted(s.label)));
  }
  return plots;
}

std::vector<std::string> bar_plots(const Chart& chart) {
  std::vector<std::string> plots;
  const double slot = 0.76 / static_cast<double>(std::max<size_t>(1, chart.series.size()));
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    if (s.overlay || s.points.empty()) continue;
    const double from = static_cast<double>(i) * slot - 0.38, middle = from + slot / 2;
    plots.push_back(fmt::format(
        "$d{} using 2:1:(0):2:($1+{:.4g}):($1+{:.4g}) with boxxyerror fs solid {} border lw 0.6 lc rgb '{}' title {}",
        i, from + 0.04 * slot, from + 0.96 * slot, s.colour == kGrey ? "0.25" : "1.0", kPalette[s.colour].light,
        quoted(s.label)));
    if (std::any_of(s.points.begin(), s.points.end(), [](const ChartPoint& p) { return p.has_spread(); }))
      plots.push_back(
          fmt::format("$d{} using 2:($1+{:.4g}):3:4 with xerrorbars pt 0 lw 0.6 lc rgb '#222222' notitle", i, middle));
    plots.push_back(fmt::format(
        "$d{} using 4:($1+{:.4g}):(sprintf('%.2f',$2)) with labels left offset 0.4,0 font small notitle", i, middle));
  }
  return plots;
}

// Of markers, and of the key and the numbers behind bars, which are smaller than the rest.
std::string sizes(double point, int text) {
  return fmt::format("point = {:g}\nsmall = ',{}'\nset key font ',{}'\n", point, text * 3 / 4, text * 7 / 8);
}

// Text of 8 points; the SVG has 2 units a point, the PNG 300 dots an inch.
std::string terminals(const Chart& chart, const std::vector<std::string>& plots) {
  const double width = FigureSize::kWidth, height = FigureSize(chart).height;
  const std::string plot = fmt::format("plot {}\n", fmt::join(plots, ", \\\n     "));
  return fmt::format(
      "set terminal pdfcairo size {1}in,{2:.2f}in font 'Helvetica,8' fontscale 0.75 linewidth 1.5\nset output "
      "'{0}.pdf'\n{10}{3}"
      "set terminal svg size {4:.0f},{5:.0f} font 'Helvetica,16' linewidth 1.6 background rgb 'white'\n"
      "set output '{0}.svg'\n{9}replot\n"
      "set terminal pngcairo size {6:.0f},{7:.0f} font 'Helvetica,8' fontscale {8} linewidth {8} pointscale {8}\n"
      "set output '{0}.png'\n{10}replot\nset output\n",
      chart.id, width, height, plot, 144 * width, 144 * height, 300 * width, 300 * height, 300 / 96.0, sizes(0.75, 16),
      sizes(0.6, 8));
}

}  // namespace

std::string gnuplot_script(const Chart& chart) {
  std::string out = fmt::format("# {}\n# {}\n", one_line(chart.title), one_line(chart.caption()));
  for (size_t i = 0; i < chart.series.size(); ++i) out += data_block(i, chart.series[i]);
  const Range2 r = range_of(chart, false);
  const bool bars = chart.kind == Chart::Kind::kBars;
  out +=
      "set border 3 lw 0.5\nset tics nomirror out scale 0.5\nset grid lt 1 lw 0.4 lc rgb '#dddddd'\n"
      "set tmargin 0.6\nset xlabel offset 0,0.5\n";
  const FigureSize size(chart);
  out += fmt::format(
      "set bmargin at screen {:.4f}\nset key at screen 0.5,{:.4f} top center horizontal maxcols {} Left reverse "
      "noenhanced samplen 3\n",
      (size.key + FigureSize::kAxis) / size.height, size.key / size.height, size.columns);
  out += bars ? bar_axes(chart, r) : line_axes(chart, r);
  out += terminals(chart, bars ? bar_plots(chart) : line_plots(chart));
  return script_head(chart.id, out) + out;
}

std::string script_head(const std::string& id, std::string_view rest) {
  return fmt::format(
      "{0}{1}.pdf, {1}.svg and {1}.png: gnuplot {1}.gp\n# What follows had, as written, the CRC-32 {2}.\n",
      kScriptBeginning, id, checksum(std::as_bytes(std::span(rest))));
}

void remove_figure(const fs::path& script) {
  for (const char* kind : kPictureKinds) fs::remove(fs::path(script).replace_extension(kind));
  fs::remove(script);
}

FigureFiles write_figures(const std::vector<Chart>& charts, const fs::path& dir, const std::string& gnuplot,
                          const Watch& watch) {
  FigureFiles made;
  make_subdirectory(dir);
  double done = 0;
  watch.at(0);
  for (const Chart& chart : charts) {
    const std::string script = chart.id + ".gp";
    write_atomically(dir / script, gnuplot_script(chart));
    made.files.push_back(dir / script);
    if (!made.note.empty()) continue;
    for (const char* kind : kPictureKinds) fs::remove(dir / (chart.id + kind));  // gnuplot would follow a link
    made.note = run_in(dir, gnuplot, script);
    watch.at(++done / static_cast<double>(charts.size()));  // a Ctrl-C that ended gnuplot is no fault of it
    if (!made.note.empty()) continue;
    for (const char* kind : kPictureKinds) made.files.push_back(dir / (chart.id + kind));
  }
  watch.at(1);
  if (!made.note.empty())
    made.note = fmt::format("figures were not drawn ({}). Install gnuplot-nox and run `gnuplot *.gp` in {}.", made.note,
                            dir.string());
  return made;
}

}  // namespace longshot
