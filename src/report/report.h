// A directory with report.html, figures/, tables/ and results.csv from results.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "run/results.h"

namespace longshot {

// Where Debian's libjs-chart.js puts Chart.js.
inline constexpr const char* kChartJs = "/usr/share/javascript/chart.js/chart.min.js";

struct ReportOptions {
  bool figures = true;
  std::string chart_js = kChartJs;
  std::string gnuplot = "gnuplot";
};

struct ReportFiles {
  fs::path page;
  fs::path numbers;  // CSV of every measured number
  std::vector<fs::path> figures;
  std::vector<fs::path> tables;    // LaTeX
  std::vector<std::string> notes;  // what is missing and what would bring it
};

ReportFiles write_report(const Results& results, const fs::path& dir, const ReportOptions& options = {},
                         const Watch& watch = {});

// "name=PATH", where no file is called so.
struct LabelledPath {
  std::optional<std::string> label;
  fs::path path;
};
LabelledPath labelled_path(const fs::path& given);

// Results from any mix of: a results.json, a directory that holds one, a run's directory. Runs are put
// together; names that clash get the directory's name in front.
//
// A run's directory is read as train and eval leave it: run.json (one run of docs/results-schema.json) if
// there; else config.toml, metrics.jsonl (lines with step, loss, and what else of a curve point is known) and
// evals.jsonl (lines as `eval --json` writes them).
Results gather_results(const std::vector<fs::path>& paths, const Watch& watch = {});

}  // namespace longshot
