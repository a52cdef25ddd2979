#include "report/report.h"

#include "base/error.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"

namespace longshot {

ReportFiles write_report(const Results& results, const fs::path& dir, const ReportOptions& options,
                         const Watch& watch) {
  require(!results.runs.empty(), "there are no runs to report on");
  make_directories(dir);
  ReportFiles files{.page = dir / "report.html", .figures = {}, .notes = {}};
  PageOptions page;
  if (options.figures) {
    FigureFiles figures = write_figures(all_charts(results), dir / "figures", options.gnuplot, watch);
    files.figures = std::move(figures.files);
    if (!figures.note.empty()) files.notes.push_back(figures.note);
    page.note = figures.note;
  }
  std::error_code missing;
  if (fs::is_regular_file(options.chart_js, missing)) {
    page.chart_js = read_text(options.chart_js);
    if (page.chart_js.find("</script") != std::string::npos) page.chart_js.clear();  // would end the element early
  }
  if (page.chart_js.empty())
    files.notes.push_back(fmt::format("the page's charts are still drawings: {} is not there (package libjs-chart.js).",
                                      options.chart_js));
  write_atomically(files.page, page_html(results, page));
  return files;
}

}  // namespace longshot
