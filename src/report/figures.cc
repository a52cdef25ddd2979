#include "report/figures.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

extern char** environ;

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

bool has_band(const Series& s) {
  for (const ChartPoint& p : s.points)
    if (p.low && p.high && *p.low < *p.high) return true;
  return false;
}

// Runs `program script` in `dir`. Returns "" or what went wrong.
std::string run_in(const fs::path& dir, const std::string& program, const std::string& script) {
  const fs::path log = dir / (script + ".log");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_addchdir_np(&actions, dir.c_str());
  std::string name = program, plain = "-d", argument = script;  // -d: without the user's own settings
  char* argv[] = {name.data(), plain.data(), argument.data(), nullptr};
  pid_t pid = 0;
  const int failure = ::posix_spawnp(&pid, name.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failure == 0) {
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  const std::string said = fs::exists(log) ? read_text(log) : "";
  std::error_code ignored;
  fs::remove(log, ignored);
  if (failure != 0) return fmt::format("{}: {}", program, std::strerror(failure));
  return status == 0 ? "" : fmt::format("{} failed on {}: {}", program, script, said.substr(0, 300));
}

}  // namespace

std::string gnuplot_script(const Chart& chart) {
  std::string out = fmt::format("# Draws {0}.svg and {0}.png: gnuplot {0}.gp\n", chart.id);
  for (size_t i = 0; i < chart.series.size(); ++i) out += data_block(i, chart.series[i]);
  out += fmt::format("set title {} noenhanced\nset xlabel {} noenhanced\nset ylabel {} noenhanced\n",
                     quoted(chart.title), quoted(chart.x.label), quoted(chart.y.label));
  out +=
      "set grid lc rgb '#dddddd' lt 1\nset border 3\nset tics nomirror\nset key outside right top "
      "noenhanced\n";
  const Range2 r = range_of(chart, false);
  out +=
      fmt::format("set xrange [{:.9g}:{:.9g}]\nset yrange [{:.9g}:{:.9g}]\n", r.x_least, r.x_most, r.y_least, r.y_most);
  if (chart.x.log) out += "set logscale x\n";
  if (chart.y.log) out += "set logscale y\n";
  const auto set_ticks = [&](const char* axis, const std::vector<double>& ticks) {
    std::vector<std::string> labels;
    for (const double tick : ticks) labels.push_back(tick_text(tick));
    out += fmt::format("set {}tics {} noenhanced\n", axis, tick_list(labels, ticks));
  };
  set_ticks("y", ticks_between(r.y_least, r.y_most, chart.y.log));
  const bool bars = chart.kind == Chart::Kind::kBars;
  if (bars) {
    std::vector<double> places(chart.categories.size());
    for (size_t c = 0; c < places.size(); ++c) places[c] = static_cast<double>(c);
    out += fmt::format("set xtics {} noenhanced\nset style fill solid 0.9\n", tick_list(chart.categories, places));
  } else {
    set_ticks("x", chart.x.ticks.empty() ? ticks_between(r.x_least, r.x_most, chart.x.log) : chart.x.ticks);
  }
  for (const Mark& mark : chart.marks)
    out += fmt::format("set arrow from {0:.9g}, graph 0 to {0:.9g}, graph 1 nohead dt 2 lc rgb '#888888'\n", mark.x);

  std::vector<std::string> plots;
  size_t shown = 0;
  for (const Series& s : chart.series) shown += s.overlay ? 0 : 1;
  const double slot = 0.76 / static_cast<double>(shown);
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    if (s.overlay || s.points.empty()) continue;
    const char* colour = kPalette[s.colour].light;
    if (bars) {
      plots.push_back(fmt::format("$d{} using ($1+{:.4g}):2:({:.4g}) with boxes lc rgb '{}' title {}", i,
                                  (static_cast<double>(i) + 0.5) * slot - 0.38, 0.92 * slot, colour, quoted(s.label)));
      continue;
    }
    if (has_band(s))
      plots.push_back(fmt::format(
          "$d{} using 1:3:4 with filledcurves fs transparent solid 0.18 noborder lc rgb '{}' notitle", i, colour));
    plots.push_back(fmt::format("$d{} using 1:2 with {} lw 2 dt {} pt {} ps 0.7 lc rgb '{}' title {}", i,
                                s.points.size() > 40 ? "lines" : "linespoints", s.dash + 1, 5 + 2 * (s.colour % 4),
                                colour, quoted(s.label)));
  }
  const std::string plot = fmt::format("plot {}\n", fmt::join(plots, ", \\\n     "));
  out +=
      fmt::format("set terminal svg size 800,480 background rgb 'white' font 'Helvetica,14'\nset output '{}.svg'\n{}",
                  chart.id, plot);
  out += fmt::format("set terminal pngcairo size 1600,960 fontscale 1.6 linewidth 2\nset output '{}.png'\n{}", chart.id,
                     plot);
  return out;
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
    for (const char* kind : {".svg", ".png"}) fs::remove(dir / (chart.id + kind));  // gnuplot would follow a link
    made.note = run_in(dir, gnuplot, script);
    watch.at(++done / static_cast<double>(charts.size()));  // a Ctrl-C that ended gnuplot is no fault of it
    if (!made.note.empty()) continue;
    made.files.push_back(dir / (chart.id + ".svg"));
    made.files.push_back(dir / (chart.id + ".png"));
  }
  watch.at(1);
  if (!made.note.empty())
    made.note = fmt::format("figures were not drawn ({}). Install gnuplot-nox and run `gnuplot *.gp` in {}.", made.note,
                            dir.string());
  return made;
}

}  // namespace longshot
