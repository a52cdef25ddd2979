#include "report/report.h"

#include <algorithm>

#include "base/error.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"
#include "report/tables.h"
#include "report/tidy.h"
#include "run/run_dir.h"

namespace longshot {
namespace {

// Texts in `dir` that an earlier report wrote, known by how they begin, and this one did not write again.
std::vector<fs::path> left_behind(const fs::path& dir, std::string_view beginning,
                                  const std::vector<fs::path>& written) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const fs::path extension = entry.path().extension();
    if ((extension != ".gp" && extension != ".tex") || entry.is_symlink() || !entry.is_regular_file()) continue;
    const bool again = std::ranges::find(written, entry.path()) != written.end();
    if (!again && read_text(entry.path()).starts_with(beginning)) found.push_back(entry.path());
  }
  return found;
}

}  // namespace

ReportFiles write_report(const Results& results, const fs::path& dir, const ReportOptions& options,
                         const Watch& watch) {
  require(!results.runs.empty(), "there are no runs to report on");
  make_directories(dir);
  const ExperimentDir names(dir);
  ReportFiles files{.page = names.report(), .numbers = names.numbers(), .figures = {}, .tables = {}, .notes = {}};
  PageOptions page;
  if (options.figures) {
    FigureFiles figures = write_figures(all_charts(results), names.figures(), options.gnuplot, watch);
    files.figures = std::move(figures.files);
    for (const fs::path& script : left_behind(names.figures(), kScriptBeginning, files.figures)) remove_figure(script);
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
  write_atomically(files.numbers, tidy_csv(results));
  make_subdirectory(names.tables());
  for (const Table& table : paper_tables(results)) {
    files.tables.push_back(names.tables() / (table.id + ".tex"));
    write_atomically(files.tables.back(), latex_text(table));
  }
  for (const fs::path& table : left_behind(names.tables(), kLatexBeginning, files.tables)) fs::remove(table);
  return files;
}

}  // namespace longshot
