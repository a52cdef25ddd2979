#include "report/report.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/printable.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "report/tables.h"

namespace longshot {
namespace {

class ReportCommand : public Command {
 public:
  void options(Options& o) override {
    o.add("out", out_,
          "directory for report.html, figures/, tables/ and results.csv; empty: beside the first argument");
    o.add("figures", report_.figures, "also write each chart as PDF, SVG and PNG, by gnuplot");
    o.add("chart-js", report_.chart_js, "Chart.js to put into the page");
  }
  Arguments arguments() const override { return {"[NAME=]RUN", 1, 10000}; }

  int run() override {
    catch_stop_signals();
    Progress progress;
    Results results = gather_results({args.begin(), args.end()}, watched(progress, "reading the runs"));
    if (results.version.empty()) results.version = version();
    const fs::path first = labelled_path(args[0]).path;
    if (out_.empty()) out_ = (fs::is_directory(first) ? first : first.parent_path()).string();
    const ReportFiles files =
        write_report(results, out_.empty() ? "." : out_, report_, watched(progress, "drawing the figures"));
    progress.clear();
    for (const std::string& note : files.notes) fmt::print(stderr, "longshot: {}\n", printable(note, true));
    for (const Table& table : result_tables(results)) fmt::print("{}\n", terminal_text(table));
    fmt::print("{}\n", printable(files.page.string()));
    return 0;
  }

 private:
  std::string out_;
  ReportOptions report_;
};

}  // namespace

std::unique_ptr<Command> make_report_command() { return std::make_unique<ReportCommand>(); }

}  // namespace longshot
