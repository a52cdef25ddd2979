#include "report/report.h"

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"
#include "report/tables.h"
#include "report/tidy.h"
#include "run/run_dir.h"

namespace longshot {
namespace {

bool begins_with(const fs::path& file, std::string_view beginning) {
  std::ifstream in(file, std::ios::binary);
  std::string text(beginning.size(), '\0');
  return in.read(text.data(), static_cast<std::streamsize>(text.size())) && text == beginning;
}

// A link in a file's place is replaced, as everywhere; what is no file is refused where it is written.
bool is_file(const fs::path& path) { return fs::is_regular_file(fs::symlink_status(path)); }

void require_earlier(const fs::path& file, std::string_view beginning) {
  require_usage(!is_file(file) || begins_with(file, beginning),
                "{}: is there already, and no report wrote it. Move it away, or give another --out.", file.string());
}

// Pictures are known by the script that stands beside them.
void require_earlier_pictures(const fs::path& script) {
  if (is_file(script)) return;
  for (const char* kind : kPictureKinds) {
    const fs::path picture = fs::path(script).replace_extension(kind);
    require_usage(!is_file(picture),
                  "{}: is there already, without the script of a report. Move it away, or give another --out.",
                  picture.string());
  }
}

// What the report would replace is an earlier one's.
void require_replaceable(const ExperimentDir& dir, const std::vector<Chart>& charts, const std::vector<Table>& tables) {
  require_earlier(dir.report(), kPageBeginning);
  require_earlier(dir.numbers(), kNumbersBeginning);
  for (const Table& table : tables) require_earlier(dir.tables() / (table.id + ".tex"), kLatexBeginning);
  for (const Chart& chart : charts) {
    const fs::path script = dir.figures() / (chart.id + ".gp");
    require_earlier(script, kScriptBeginning);
    require_earlier_pictures(script);
  }
}

using Head = std::string (*)(const std::string& id, std::string_view rest);  // two lines

// As a report wrote it, under the name that it gave it.
bool is_untouched(const fs::path& file, Head head) {
  const std::string text = read_text(file);
  const size_t second = text.find('\n', text.find('\n') + 1);
  return second != std::string::npos &&
         text.starts_with(head(file.stem().string(), std::string_view(text).substr(second + 1)));
}

// Texts in `dir` that an earlier report wrote, nobody changed and this one did not write again.
std::vector<fs::path> left_behind(const fs::path& dir, std::string_view extension, Head head,
                                  const std::vector<fs::path>& written) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() != extension || !is_file(entry.path())) continue;
    const bool again = std::ranges::find(written, entry.path()) != written.end();
    if (!again && is_untouched(entry.path(), head)) found.push_back(entry.path());
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
  const std::vector<Chart> charts = options.figures ? all_charts(results) : std::vector<Chart>();
  const std::vector<Table> tables = paper_tables(results);
  require_replaceable(names, charts, tables);
  PageOptions page;
  if (options.figures) {
    FigureFiles figures = write_figures(charts, names.figures(), options.gnuplot, watch);
    files.figures = std::move(figures.files);
    for (const fs::path& script : left_behind(names.figures(), ".gp", script_head, files.figures))
      remove_figure(script);
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
  for (const Table& table : tables) {
    files.tables.push_back(names.tables() / (table.id + ".tex"));
    write_atomically(files.tables.back(), latex_text(table));
  }
  for (const fs::path& table : left_behind(names.tables(), ".tex", latex_head, files.tables)) fs::remove(table);
  return files;
}

}  // namespace longshot
