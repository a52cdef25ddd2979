#include "report/page.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/report.h"
#include "report/sample.h"

namespace longshot {
namespace {

using testing::HasSubstr;
using testing::Not;

// One tag, from its '<' on. `at` moves behind it; a fault is "" or what is wrong.
struct Tag {
  std::string name, fault;
  bool closing = false, empty = false;

  Tag(const std::string& html, size_t& at) {
    const auto is = [&](char c) { return at < html.size() && html[at] == c; };
    const auto word = [&] {
      const size_t begin = at;
      while (at < html.size() && (std::isalnum(static_cast<unsigned char>(html[at])) || is('-'))) ++at;
      return html.substr(begin, at - begin);
    };
    const size_t begin = at++;
    closing = is('/');
    if (closing) ++at;
    name = word();
    while (is(' ') && !name.empty()) {
      ++at;
      const std::string attribute = word();
      const size_t end = html.find('"', at + 2);
      if (attribute.empty() || html.compare(at, 2, "=\"") != 0 || end == std::string::npos ||
          html.find('<', at) < end) {
        fault = "bad attribute";
        break;
      }
      at = end + 1;
    }
    empty = is('/');
    if (empty) ++at;
    if (name.empty() || !is('>')) fault = "not a tag";
    if (!fault.empty()) fault += ": " + html.substr(begin, 120);
    ++at;
  }
};

// "" if every element is closed in order and every attribute is quoted, else what is wrong. Script and style
// are read as the browser reads them: up to their end tag.
std::string not_well_formed(const std::string& html) {
  std::vector<std::string> open;
  size_t at = html.find("<html");
  while ((at = html.find('<', at)) != std::string::npos) {
    const Tag tag(html, at);
    if (!tag.fault.empty()) return tag.fault;
    if (tag.closing) {
      if (open.empty() || open.back() != tag.name)
        return fmt::format("</{}> closes {}", tag.name, open.empty() ? "nothing" : open.back());
      open.pop_back();
    } else if (!tag.empty) {
      open.push_back(tag.name);
      if (tag.name == "script" || tag.name == "style") at = html.find("</" + tag.name, at);
    }
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

std::string without_scripts(const std::string& html) {
  std::string out;
  size_t at = 0;
  size_t begin = html.find("<script");
  while (begin != std::string::npos) {
    out += html.substr(at, begin - at);
    at = html.find("</script>", begin);
    begin = html.find("<script", at);
  }
  return out + html.substr(at);
}

TEST(Page, IsWellFormedAndHoldsEverySection) {
  const std::string html = page_html(sample_results(), {.chart_js = "window.Chart = null;", .note = ""});
  EXPECT_EQ(not_well_formed(html), "");
  for (const char* id : {"findings", "perplexity", "saving", "grid", "positions", "decomposition", "cost", "training",
                         "biases", "origin"})
    EXPECT_THAT(html, HasSubstr(fmt::format("<section id=\"{}\">", id)));
  for (const char* text :
       {"longshot compare --data kjv", "dim = 128", "Test Processor 3000", "King James text", "m = 1/256"})
    EXPECT_THAT(html, HasSubstr(text));
  for (const char* csv : {"perplexity-1", "extrapolation", "saving", "cost", "runs", "evaluations", "position-loss",
                          "decomposition", "training-curves", "biases"})
    EXPECT_THAT(html, HasSubstr(fmt::format("download=\"{}.csv\" href=\"data:text/csv", csv)));
}

TEST(Page, TheCheckerSeesBrokenPages) {
  EXPECT_EQ(not_well_formed("<html><p>a</p></html>"), "");
  EXPECT_NE(not_well_formed("<html><p>a</html>"), "");
  EXPECT_NE(not_well_formed("<html><p title=\"<\">a</p></html>"), "");
  EXPECT_NE(not_well_formed("<html><p title=x>a</p></html>"), "");
  EXPECT_NE(not_well_formed("<html>a < b</html>"), "");
}

TEST(Page, AsksForNothing) {
  const std::string html = page_html(sample_results(), {.chart_js = read_text(kChartJs), .note = ""});
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  const std::regex request(R"re((src|href|action|data|poster)\s*=\s*["']?\s*(https?:|//|/|\.))re", std::regex::icase);
  const std::string body = without_scripts(html);
  EXPECT_FALSE(std::regex_search(body, request));
  for (const char* word : {"@import", "<link", "<img", "<iframe", "http://", "https://"})
    EXPECT_THAT(body, Not(HasSubstr(word)));
  EXPECT_FALSE(std::regex_search(body, std::regex(R"re(url\((?!#))re"))) << "only clip paths inside the page";
}

TEST(Page, HostileTextIsEscapedEverywhere) {
  const std::string evil = "</script><script>alert(1)</script><!-- \"'& \x01";
  Results results = sample_results();
  for (RunRecord& run : results.runs) {
    run.name = evil + run.name;
    if (run.position == "rotary") run.position = evil;
    for (EvalRecord& e : run.evals) e.split = evil;
  }
  results.command = results.config = results.version = results.date = results.machine.cpu = evil;
  results.data.name = results.data.tokenizer = evil;
  const std::string html = page_html(results, {.chart_js = "", .note = evil});
  EXPECT_EQ(not_well_formed(html), "");
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<!--")));
  EXPECT_THAT(html, Not(HasSubstr("\x01")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
}

TEST(Page, OfManyHeadsTheFirstAreDrawn) {
  Results results = sample_results();
  for (RunRecord& run : results.runs) {
    if (run.biases) run.biases = Biases{.heads = 100'000, .slopes = std::vector<double>(100'000, 0.5), .table = {}};
  }
  const std::string page = page_html(results, {});
  EXPECT_LT(page.size(), 8u << 20);  // the results themselves, which it holds, have 4
  EXPECT_THAT(page, HasSubstr("100000 heads (the first 64)"));
}

TEST(Page, SparseResultsStillMakeAPage) {
  Results results;
  results.runs.resize(1);
  results.runs[0].name = "only", results.runs[0].position = "none", results.runs[0].train_length = 8;
  EXPECT_EQ(not_well_formed(page_html(results, {})), "");
  // One evaluation without a finite number, a curve of one point, one position.
  results.runs[0].evals = {{.length = 8, .stride = 8, .tokens = 1, .loss = {}, .standard_error = {}, .perplexity = {}}};
  results.runs[0].curve = {{.step = 0, .tokens = {}, .seconds = {}, .loss = 3.0, .valid_loss = {}}};
  results.runs[0].per_position = {{.from = 0, .to = 1, .tokens = 1, .loss = 0.0}};
  const std::string html = page_html(results, {});
  EXPECT_EQ(not_well_formed(html), "");
  EXPECT_THAT(html, HasSubstr("not finite"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, HasSubstr("libjs-chart.js")) << "without Chart.js the page says so";
}

class ReportFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / fmt::format("longshot-report-{}-{}", ::getpid(),
                                                   testing::UnitTest::GetInstance()->current_test_info()->name());
    make_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  struct Outcome {
    int code;
    std::string output;
  };
  Outcome longshot(const std::string& arguments) const {
    const std::string command =
        fmt::format("{} report {} > {}/output 2>&1", LONGSHOT_PROGRAM, arguments, dir_.string());
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), read_text(dir_ / "output")};
  }

  fs::path dir_;
};

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_F(ReportFilesTest, FiguresAreDrawn) {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "gnuplot is not installed: figures were NOT tested";
  Results results = sample_results();
  for (RunRecord& run : results.runs)
    if (run.position == "rotary") run.position = "it's `touch " + (dir_ / "owned").string() + "` @x \"q\"\n";
  std::vector<Chart> charts = perplexity_charts(results);
  charts.resize(1);
  charts.push_back(grid_chart(results));
  charts.push_back(cost_charts(results)[0]);
  write_atomically(dir_ / "victim", "precious");
  for (const char* kind : {".svg", ".png"}) fs::create_symlink("victim", dir_ / (charts[0].id + kind));
  const FigureFiles made = write_figures(charts, dir_);
  EXPECT_EQ(read_text(dir_ / "victim"), "precious");
  EXPECT_EQ(made.note, "");
  EXPECT_EQ(made.files.size(), 12u);
  for (const Chart& chart : charts) {
    EXPECT_THAT(read_text(dir_ / (chart.id + ".png")), testing::StartsWith("\x89PNG"));
    const std::string svg = read_text(dir_ / (chart.id + ".svg"));
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_THAT(svg, HasSubstr("ALiBi"));
    EXPECT_THAT(read_text(dir_ / (chart.id + ".pdf")), testing::StartsWith("%PDF"));
    EXPECT_GT(fs::file_size(dir_ / (chart.id + ".png")), 8000u);
  }
  EXPECT_FALSE(fs::exists(dir_ / "owned")) << "a name was run as a command";
}

// Names are data: neither quotes nor what gnuplot takes for a format may break a figure.
TEST_F(ReportFilesTest, FiguresOfAMethodWithAnOddName) {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "gnuplot is not installed: figures were NOT tested";
  Results results = sample_results();
  for (RunRecord& run : results.runs)
    if (run.position == "alibi") run.position = "a'%d";
  const ReportFiles files = write_report(results, dir_);
  EXPECT_THAT(files.notes, testing::IsEmpty());
  for (const fs::path& file : files.figures) EXPECT_TRUE(fs::exists(file)) << file;
}

TEST_F(ReportFilesTest, WhatGnuplotSaysGoesIntoNoFile) {
  const Chart chart = grid_chart(sample_results());
  write_atomically(dir_ / "victim", "precious");
  fs::create_symlink("victim", dir_ / (chart.id + ".gp.log"));
  const FigureFiles made = write_figures({chart}, dir_, "cat");  // which knows no option -d
  EXPECT_THAT(made.note, testing::AllOf(HasSubstr("cat failed on grid.gp"), HasSubstr("invalid option")));
  EXPECT_EQ(read_text(dir_ / "victim"), "precious");
  EXPECT_TRUE(fs::is_symlink(dir_ / (chart.id + ".gp.log")));
}

TEST_F(ReportFilesTest, NothingOfOthersIsReplaced) {
  const ReportOptions no_gnuplot{.gnuplot = "no-such-gnuplot"};
  for (const char* name :
       {"report.html", "results.csv", "tables/configurations.tex", "figures/grid.gp", "figures/grid.pdf"}) {
    make_directories((dir_ / name).parent_path());
    write_atomically(dir_ / name, "mine");
    EXPECT_THAT(error_of([&] { write_report(sample_results(), dir_, no_gnuplot); }),
                testing::AllOf(HasSubstr(name), HasSubstr("Move it away")))
        << name;
    EXPECT_EQ(read_text(dir_ / name), "mine") << name;
    fs::remove(dir_ / name);
    const bool nothing = std::ranges::none_of(fs::recursive_directory_iterator(dir_),
                                              [](const fs::directory_entry& e) { return e.is_regular_file(); });
    EXPECT_TRUE(nothing) << name << ": refused before anything is written";
  }
  write_report(sample_results(), dir_, no_gnuplot);
  EXPECT_NO_THROW(write_report(sample_results(), dir_, no_gnuplot)) << "over its own";
}

TEST_F(ReportFilesTest, FiguresGoNowhereElse) {
  make_directories(dir_ / "elsewhere");
  fs::create_directory_symlink("elsewhere", dir_ / "figures");
  EXPECT_THROW(write_report(sample_results(), dir_), Error);
  EXPECT_TRUE(fs::is_empty(dir_ / "elsewhere"));
}

TEST_F(ReportFilesTest, AMissingGnuplotOrChartJsIsANote) {
  const ReportFiles files =
      write_report(sample_results(), dir_, {.chart_js = "/nowhere/chart.js", .gnuplot = "no-such-gnuplot"});
  EXPECT_TRUE(fs::exists(files.page));
  ASSERT_EQ(files.notes.size(), 2u);
  EXPECT_THAT(files.notes[0], testing::AllOf(HasSubstr("no-such-gnuplot"), HasSubstr("gnuplot-nox")));
  EXPECT_THAT(files.notes[1], HasSubstr("libjs-chart.js"));
  EXPECT_THAT(read_text(files.page), HasSubstr("figures were not drawn"));
  EXPECT_TRUE(fs::exists(dir_ / "figures" / "grid.gp")) << "the scripts stay, to be run later";
}

TEST_F(ReportFilesTest, CommandReadsADirectoryOrAFile) {
  write_results(dir_ / "results.json", sample_results());
  const Outcome directory = longshot(fmt::format("{} --no-figures", dir_.string()));
  EXPECT_EQ(directory.code, 0) << directory.output;
  EXPECT_THAT(directory.output, HasSubstr((dir_ / "report.html").string()));
  EXPECT_THAT(directory.output, HasSubstr("Perplexity per byte, non-overlapping windows"));
  const Outcome file = longshot(fmt::format("{0}/results.json --no-figures --out {0}/other", dir_.string()));
  EXPECT_EQ(file.code, 0) << file.output;
  EXPECT_EQ(read_text(dir_ / "other" / "report.html"), read_text(dir_ / "report.html"));
}

TEST_F(ReportFilesTest, CommandReadsRuns) {
  const RunRecord alibi = sample_run("alibi", 64, 1, 1.0), rotary = sample_run("rotary", 64, 1, 1.0);
  make_directories(dir_ / "a");
  write_json(dir_ / "a" / "run.json", run_to_json(alibi));
  make_directories(dir_ / "b");
  write_atomically(dir_ / "b" / "config.toml", "position = \"rotary\"\nlength = 64\nseed = 1\ndim = 128\n");
  for (const int step : {10, 20, 20})
    append_record(dir_ / "b" / "metrics.jsonl", {{"step", step}, {"loss", 3.0}, {"lr", 0.1}});
  Json results = run_to_json(rotary)["evals"];
  append_record(dir_ / "b" / "evals.jsonl",
                {{"model", "b"}, {"position", "rotary"}, {"train_length", 64}, {"results", results}});

  const Results gathered = gather_results({dir_ / "a", fs::path((dir_ / "b").string() + "/")});
  ASSERT_EQ(gathered.runs.size(), 2u);
  EXPECT_EQ(gathered.runs[0].name, alibi.name);
  EXPECT_EQ(gathered.runs[1].name, "b");
  EXPECT_EQ(gathered.runs[1].position, "rotary");
  EXPECT_EQ(gathered.runs[1].curve.size(), 2u);
  EXPECT_EQ(gathered.runs[1].evals.size(), rotary.evals.size());
  const Outcome outcome = longshot(fmt::format("{0}/a {0}/b --no-figures --out {0}", dir_.string()));
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("Rotary"));
  EXPECT_EQ(longshot(fmt::format("mine={}/b --no-figures", dir_.string())).code, 0);
  EXPECT_TRUE(fs::exists(dir_ / "b" / "report.html")) << "a label is no part of the path";
}

TEST_F(ReportFilesTest, CommandRefusesWhatIsNoRun) {
  EXPECT_EQ(longshot("").code, 2);
  EXPECT_EQ(longshot(dir_.string() + " --colour red").code, 2);
  const Outcome empty = longshot(dir_.string());
  EXPECT_EQ(empty.code, 1);
  EXPECT_THAT(empty.output, HasSubstr("neither a results file nor a directory with compare.json"));
  write_atomically(dir_ / "results.json", "{\"format\": 1}");
  const Outcome broken = longshot(dir_.string());
  EXPECT_EQ(broken.code, 1);
  EXPECT_THAT(broken.output, HasSubstr("results.json: format must be text"));
  write_results(dir_ / "results.json", Results{});
  EXPECT_THAT(longshot(dir_.string()).output, HasSubstr("there are no runs to report on"));
}

}  // namespace
}  // namespace longshot
