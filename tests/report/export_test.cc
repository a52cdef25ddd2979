// Files for papers and programs: LaTeX tables, one CSV of every number.
#include <gmock/gmock.h>

#include "base/error.h"
#include "report/figures.h"
#include "report/many.h"
#include "report/report.h"
#include "report/table.h"
#include "report/text.h"
#include "report/tidy.h"
#include "run/run_dir.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

TEST(Latex, ATableInBooktabsStyle) {
  Table table{.id = "cost",
              .title = "What it costs",
              .note = "Lower is better.",
              .header = {"method", "perplexity", "change"},
              .rows = {}};
  table.rows.push_back({text_cell("ALiBi"), number_cell(6.5, 2), number_cell(-0.25, 2)});
  table.rows.push_back({text_cell("T5 bias"), number_cell(std::nullopt, 2), number_cell(0.5, 2)});
  table.rows[0][1].best = true;
  table.rows[1][2].text = "0.50 ± 0.02";
  EXPECT_EQ(latex_text(table), R"(% In the preamble: \usepackage{booktabs,graphicx}
% Table cost. What follows had, as written, the CRC-32 d32a8f3e.
\begin{table}
  \centering
  \caption{What it costs. Lower is better.}
  \label{tab:cost}
  \resizebox{\ifdim\width>\linewidth \linewidth\else\width\fi}{!}{\begin{tabular}{lrr}
    \toprule
    method & perplexity & change \\
    \midrule
    ALiBi & \textbf{6.50} & $-$0.25 \\
    T5 bias & -- & 0.50 $\pm$ 0.02 \\
    \bottomrule
  \end{tabular}}
\end{table}
)");
}

TEST(Latex, ATableOfManyRowsGoesOnOverPages) {
  Table table{.id = "long", .title = "Many", .note = "", .header = {"n"}, .rows = {}};
  for (int i = 0; i < 41; ++i) table.rows.push_back({count_cell(i)});
  const std::string text = latex_text(table);
  EXPECT_EQ(text.find("\\begin{table}"), text.find('\n', text.find('\n') + 1) + 1);
  const std::string rest = text.substr(text.rfind("\\begin{table}"));
  EXPECT_THAT(rest, AllOf(HasSubstr("\\caption{Many, continued.}"), Not(HasSubstr("\\label")),
                          HasSubstr("    n \\\\\n"), HasSubstr("\\midrule\n    40 \\\\\n    \\bottomrule")));
  EXPECT_THAT(text.substr(0, text.size() - rest.size()),
              AllOf(HasSubstr("    39 \\\\\n"), HasSubstr("\\label{tab:long}")));
}

TEST(Latex, ShowsWhatIsWritten) {
  EXPECT_EQ(escape_latex("a&b%c_d#e$f"), R"(a\&b\%c\_d\#e\$f)");
  EXPECT_EQ(escape_latex(R"(\{}~^)"), R"(\textbackslash{}\{\}\textasciitilde{}\textasciicircum{})");
  EXPECT_EQ(escape_latex("[1]* <x>|\"q\""), R"({[}1{]}{*} \textless{}x\textgreater{}\textbar{}''q'')");
  EXPECT_EQ(escape_latex("a\nb\tc\x01\x7f é"), "a b c é");
}

// Outside of commands of our own, every special character is behind a backslash, and braces match.
TEST(Latex, HostileNamesStayInTheirCells) {
  Results results = many_results(2, 1);
  for (RunRecord& run : results.runs)
    if (run.position == "alibi") run.position = R"(\input{/etc/passwd} & % _ # $ { } ~ ^ \\ [x] \end{tabular})";
  const fs::path dir = fs::temp_directory_path() / fmt::format("longshot-latex-{}", ::getpid());
  const ReportFiles files = write_report(results, dir, {.figures = false});
  EXPECT_GT(files.tables.size(), 5u);
  for (const fs::path& path : files.tables) {
    const std::string text = read_text(path);
    SCOPED_TRACE(path);
    EXPECT_THAT(text, AllOf(Not(HasSubstr("\\input")), HasSubstr("\\toprule")));
    int depth = 0, tabulars = 0;
    for (size_t i = text.find("\\begin{table}"); i < text.size(); ++i) {
      if (text[i] == '\\') {
        tabulars += text.compare(i, 13, "\\end{tabular}") == 0 ? 1 : 0;
        if (std::string_view("&%_#${}\\").find(text[i + 1]) != std::string_view::npos) ++i;
        continue;
      }
      depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
      ASSERT_GE(depth, 0);
      EXPECT_EQ(std::string_view("%_#~^").find(text[i]), std::string_view::npos) << text.substr(i, 40);
    }
    EXPECT_EQ(depth, 0);
    EXPECT_EQ(tabulars, 1);
    const size_t columns = text.find('}', text.find("{tabular}{") + 10) - text.find("{tabular}{") - 10;
    for (size_t row = text.find("\\midrule\n") + 9; text.compare(row, 15, "    \\bottomrule") != 0;
         row = text.find('\n', row) + 1) {
      size_t cells = 1;
      for (size_t i = row; text[i] != '\n'; ++i) {
        if (text[i] == '\\')
          ++i;
        else
          cells += text[i] == '&' ? 1 : 0;
      }
      EXPECT_EQ(cells, columns);
    }
  }
  fs::remove_all(dir);
}

// Rows of fields, by RFC 4180.
std::vector<std::vector<std::string>> read_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, std::vector<std::string>(1));
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is = [&](const char* word) { return text.compare(i, 2, word) == 0; };
    if (quoted && is("\"\"")) {
      rows.back().back() += text[i++];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == ',') {
      rows.back().emplace_back();
    } else if (!quoted && is("\r\n")) {
      ++i, rows.emplace_back(1);
    } else {
      rows.back().back() += text[i];
    }
  }
  rows.pop_back();
  return rows;
}

TEST(Tidy, OneRowPerNumber) {
  Results results;
  RunRecord run{.name = "r1", .position = "alibi", .variant = "v", .label = "mine", .train_length = 64, .seed = 7};
  run.train_seconds = 12.5, run.steps = 100, run.tokens = 6400;
  MetricsRecord point{.step = 10, .tokens = 640, .loss = 3.25, .valid_loss = 3.5};
  point.valid_losses = {{.length = 128, .loss = 3.75}};
  run.curve = {point};
  run.evals = {{.length = 128,
                .stride = 128,
                .tokens = 1000,
                .step = 100,
                .precision = Precision::kF32,
                .scaling = "alibi-scaling ntk, alibi-scaling-factor 4",
                .loss = 2.5,
                .standard_error = 0.01,
                .perplexity = 12.1825},
               {.length = 256, .stride = 256, .tokens = 1000}};
  run.per_position = {{.from = 0, .to = 1, .tokens = 10, .loss = 5.0, .standard_error = 0.5}};
  run.decomposition = {{.length = 128, .total = -0.5, .curse_relief = -0.4, .beyond = -0.1, .beyond_error = 0.02}};
  run.speeds = {{.work = SpeedWork::kTraining, .length = 64, .median = 1000, .low = 900, .high = 1100, .rounds = 3}};
  results.runs = {run};
  const auto rows = read_csv(tidy_csv(results));
  for (const auto& row : rows) ASSERT_EQ(row.size(), 22u);
  EXPECT_THAT(rows[0], ElementsAre("run", "label", "position", "variant", "train_length", "seed", "quantity", "length",
                                   "mode", "stride", "split", "score", "precision", "scaling", "step", "from", "to",
                                   "tokens", "value", "standard_error", "low", "high"));
  const auto has = [&](const std::string& line) {
    auto fields = read_csv("r1,mine,alibi,v,64,7," + line + "\r\n")[0];
    EXPECT_THAT(rows, Contains(fields));
  };
  has("train_seconds,64,,,,,,,100,,,6400,12.5,,,");
  has("training_loss,64,,,,,,,10,,,640,3.25,,,");
  has("valid_loss,64,,,,,,,10,,,640,3.5,,,");
  has("valid_loss,128,,,,,,,10,,,640,3.75,,,");
  has("loss,128,nonoverlapping,128,valid,same,f32,\"alibi-scaling ntk, alibi-scaling-factor 4\",100,,,1000,2.5,0.01,,");
  has("perplexity,128,nonoverlapping,128,valid,same,f32,\"alibi-scaling ntk, alibi-scaling-factor "
      "4\",100,,,1000,12.1825,,,");
  has("loss,256,nonoverlapping,256,valid,same,,,,,,1000,,,,");
  has("position_loss,,,,,,,,,0,1,10,5,0.5,,");
  has("beyond,128,,,,,,,,,,,-0.1,0.02,,");
  has("training_speed,64,,,,,,,,,,,1000,,900,1100");
  EXPECT_EQ(rows.size(), 13u);
}

TEST(Tidy, HostileNamesAreTextOfOneField) {
  Results results;
  for (const char* name : {"=1+1", "+x", "-x", "@x", "a,\"b\"\r\nc"})
    results.runs.push_back({.name = name, .position = "none", .train_length = 8, .parameters = 5});
  std::vector<std::string> names;
  for (const auto& row : read_csv(tidy_csv(results))) {
    ASSERT_EQ(row.size(), 22u);
    names.push_back(row[0]);
  }
  EXPECT_THAT(names, ElementsAre("run", "'=1+1", "'+x", "'-x", "'@x", "a,\"b\"\r\nc"));
}

TEST(ReportDirectory, HoldsTablesAndNumbersAndTheRunKnowsThem) {
  const fs::path dir = fs::temp_directory_path() / fmt::format("longshot-export-{}", ::getpid());
  const ReportFiles files = write_report(many_results(2, 2), dir, {.figures = false});
  EXPECT_THAT(files.figures, IsEmpty());
  EXPECT_FALSE(fs::exists(ExperimentDir(dir).figures()));
  EXPECT_EQ(files.numbers, ExperimentDir(dir).numbers());
  EXPECT_THAT(read_text(files.numbers), StartsWith("run,label,position,"));
  EXPECT_THAT(files.tables, Contains(ExperimentDir(dir).tables() / "perplexity-1.tex"));
  for (const fs::path& table : files.tables) EXPECT_TRUE(fs::exists(table)) << table;
  for (const auto& entry : fs::directory_iterator(dir)) EXPECT_TRUE(RunDir::is_name(entry.path().filename().string()));
  fs::remove_all(dir);
}

// Of what is no longer written, files as a report wrote them go; a copy under another name and a changed text stay.
TEST(ReportDirectory, WhatAnEarlierReportLeftGoesAndWhatOthersPutThereStays) {
  const fs::path dir = fs::temp_directory_path() / fmt::format("longshot-again-{}", ::getpid());
  const ExperimentDir names(dir);
  const ReportOptions no_gnuplot{.gnuplot = "no-such-gnuplot"};
  const ReportFiles earlier = write_report(many_results(2, 2), dir, no_gnuplot);
  const auto script = [&](const char* id) { return names.figures() / fmt::format("{}.gp", id); };
  const auto table = [&](const char* id) { return names.tables() / fmt::format("{}.tex", id); };
  const std::string plot = "plot sin(x)\n", tabular = "\\begin{table}\n";
  write_atomically(script("old"), script_head("old", plot) + plot);
  write_atomically(table("old"), latex_head("old", tabular) + tabular);
  fs::copy_file(earlier.figures.front(), script("copy"));
  fs::copy_file(earlier.tables.front(), table("copy"));
  write_atomically(script("changed"), script_head("changed", plot) + "set grid\n" + plot);
  write_atomically(table("changed"), latex_head("changed", tabular) + "\\small\n" + tabular);
  write_atomically(script("mine"), plot);
  write_atomically(table("mine"), tabular);
  for (const char* id : {"old", "copy", "changed", "mine"})
    write_atomically(script(id).replace_extension(".svg"), "<svg/>");
  const ReportFiles files = write_report(many_results(2, 2), dir, no_gnuplot);
  for (const fs::path& file : files.tables) EXPECT_TRUE(fs::exists(file)) << file;
  for (const fs::path& file : files.figures) EXPECT_TRUE(fs::exists(file)) << file;
  for (const char* id : {"old", "copy", "changed", "mine"}) {
    const bool stays = id != std::string("old");
    EXPECT_EQ(fs::exists(script(id)), stays) << id;
    EXPECT_EQ(fs::exists(script(id).replace_extension(".svg")), stays) << id;
    EXPECT_EQ(fs::exists(table(id)), stays) << id;
  }
  fs::remove_all(dir);
}

}  // namespace
}  // namespace longshot
