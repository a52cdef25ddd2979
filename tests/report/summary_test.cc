#include "report/summary.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"
#include "report/charts.h"
#include "report/many.h"
#include "report/sample.h"
#include "report/table.h"
#include "report/tables.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunRecord tiny_run(const std::string& position, int64_t train_length, int64_t seed,
                   const std::vector<std::pair<int64_t, double>>& perplexities) {
  RunRecord run{.name = fmt::format("{}-{}-{}", position, train_length, seed),
                .position = position,
                .train_length = train_length,
                .seed = seed,
                .curve = {},
                .biases = {},
                .evals = {},
                .per_position = {},
                .decomposition = {}};
  for (const auto& [length, perplexity] : perplexities)
    run.evals.push_back(sample_eval(WindowMode::kNonoverlapping, length, length, std::log(perplexity), 1000));
  return run;
}

TEST(Summary, StatisticsOverSeeds) {
  const Stat stat = *stat_of({1, 2, 6});
  EXPECT_DOUBLE_EQ(stat.mean, 3);
  EXPECT_DOUBLE_EQ(stat.low, 1);
  EXPECT_DOUBLE_EQ(stat.high, 6);
  EXPECT_DOUBLE_EQ(stat.deviation, std::sqrt(7.0));
  EXPECT_FALSE(stat_of({}));
  EXPECT_EQ(stat_of({4})->deviation, 0);
}

TEST(Summary, GroupsAndProtocolsOfTheSample) {
  const Results results = sample_results();
  EXPECT_THAT(positions_of(results), ElementsAre("alibi", "sinusoidal", "rotary", "t5"));
  EXPECT_THAT(train_lengths_of(results), ElementsAre(64, 128));
  const auto groups = groups_of(results);
  ASSERT_EQ(groups.size(), 8u);
  EXPECT_EQ(groups[0].runs.size(), 2u);
  const auto protocols = protocols_of(results);
  ASSERT_EQ(protocols.size(), 2u);
  EXPECT_EQ(protocols[0].mode, WindowMode::kNonoverlapping);
  EXPECT_EQ(protocols[1].text(), "sliding windows, stride 32, valid split, 98304 tokens, the same at every length");
  EXPECT_THAT(lengths_of(results, protocols[1]), ElementsAre(64, 128, 256, 512, 1024));
}

TEST(Summary, WhatIsNoLongerReadByPeopleIsLeftOutOrRefused) {
  Results results = many_results(1, 1);
  const RunRecord run = results.runs.front();
  results.runs.clear();
  for (size_t i = 0; i < kMostGroups; ++i) {
    results.runs.push_back(run);
    results.runs.back().name = results.runs.back().label.emplace(fmt::format("run-{}", i));
    for (EvalRecord& e : results.runs.back().evals) e.length = e.stride = 64 + static_cast<int64_t>(i);
  }
  EXPECT_EQ(groups_of(results).size(), kMostGroups);
  const Table table = perplexity_tables(results).front();
  EXPECT_EQ(table.header.size(), 2 + kMostLengths);
  EXPECT_EQ(table.header.back(), fmt::format("{}", 63 + kMostLengths));
  EXPECT_EQ(table.rows.size(), kMostLengths) << "of runs that have none of these lengths there is no row";
  EXPECT_THAT(table.note, HasSubstr("No more than"));
  for (size_t i = 0; i < results.runs.size(); ++i)
    for (EvalRecord& e : results.runs[i].evals) e.tokens = static_cast<int64_t>(i + 1);
  EXPECT_EQ(protocols_of(results).size(), kMostProtocols);
  results.runs.push_back(run);
  EXPECT_THROW(groups_of(results), Error);
}

TEST(Summary, AStrideThatFollowsTheLengthIsOneProtocol) {
  Results results = sample_results();
  for (RunRecord& run : results.runs)
    for (EvalRecord& e : run.evals)
      if (e.mode == WindowMode::kSliding) e.stride = e.length / 2;
  EXPECT_EQ(protocols_of(results).size(), 2u);
  // Two strides at one length are two protocols.
  results.runs[0].evals.push_back(sample_eval(WindowMode::kSliding, 64, 1, 2.0, 10));
  EXPECT_GT(protocols_of(results).size(), 2u);
}

TEST(Table, PerplexityOnTheTerminal) {
  Results results;
  results.runs = {tiny_run("sinusoidal", 64, 1, {{64, 8}, {128, 40.5}}),
                  tiny_run("alibi", 64, 1, {{64, 9}, {128, 7.5}}), tiny_run("alibi", 64, 2, {{64, 9.5}, {128, 7.75}})};
  results.runs[0].evals.push_back(sample_eval(WindowMode::kNonoverlapping, 256, 256, 1, 1));
  results.runs[0].evals.back().loss = results.runs[0].evals.back().perplexity = std::nullopt;
  const auto tables = perplexity_tables(results);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(terminal_text(tables[0]),
            "Perplexity per token, non-overlapping windows, valid split, 98304 tokens, the same at every length\n"
            "method      trained at           64           128         256\n"
            "ALiBi               64  9.25 ± 0.35  7.62 ± 0.18*           –\n"
            "Sinusoidal          64        8.00*         40.50  not finite\n"
            "Rows: method and training length; columns: test length. * or bold: the lowest of a column. "
            "±: standard deviation over seeds.\n");
  EXPECT_EQ(csv_text(tables[0]), "method,trained at,64,128,256\r\nALiBi,64,9.25,7.625,\r\nSinusoidal,64,8,40.5,\r\n");
}

TEST(Table, HostileTextStaysText) {
  Table table{.id = "t", .title = "a\x1b[31m", .note = "", .header = {"x"}, .rows = {{text_cell("a,\"b\"\n<i>")}}};
  EXPECT_EQ(csv_text(table), "x\r\n\"a,\"\"b\"\"\n<i>\"\r\n");
  EXPECT_THAT(terminal_text(table), testing::AllOf(testing::Not(HasSubstr("\x1b")), HasSubstr("\"b\"\\n<i>")));
  EXPECT_THAT(html_text(table), testing::AllOf(HasSubstr("&lt;i&gt;"), testing::Not(HasSubstr("<i>"))));
}

TEST(Table, CellsThatASpreadsheetWouldRunAreText) {
  const Table table{
      .id = "t",
      .title = "",
      .note = "",
      .header = {"=1+1", "n"},
      .rows = {{text_cell("=HYPERLINK(\"x\")"), number_cell(-0.5, 1)}, {text_cell("@a"), number_cell(1, 1)}}};
  EXPECT_EQ(csv_text(table), "'=1+1,n\r\n\"'=HYPERLINK(\"\"x\"\")\",-0.5\r\n'@a,1\r\n");
}

TEST(Charts, OfTheSample) {
  const Results results = sample_results();
  std::vector<std::string> ids;
  for (const Chart& chart : all_charts(results)) ids.push_back(chart.id);
  EXPECT_THAT(ids, ElementsAre("perplexity-1-L64", "perplexity-1-L128", "perplexity-2-L64", "perplexity-2-L128", "grid",
                               "positions-L64", "positions-L128", "relief-L64", "beyond-L64", "relief-L128",
                               "beyond-L128", "train-speed", "eval-speed", "train-memory", "training-L64",
                               "training-L128", "validation-L64", "validation-L128"));
}

TEST(Charts, PaperOverlayStartsAtOurPoint) {
  const Chart chart = perplexity_charts(sample_results())[0];
  const auto series = [&](const std::string& label) {
    return *std::find_if(chart.series.begin(), chart.series.end(), [&](const Series& s) { return s.label == label; });
  };
  const Series ours = series("Sinusoidal"), paper = series("Sinusoidal, paper");
  EXPECT_TRUE(paper.overlay);
  EXPECT_EQ(paper.colour, ours.colour);
  EXPECT_DOUBLE_EQ(paper.points[0].x, 64);
  EXPECT_DOUBLE_EQ(paper.points[0].y, ours.points[0].y);
  // Table 2: 406.01 at 15512 against 20.05 at 512.
  EXPECT_NEAR(paper.points.back().x, 64 * 15512.0 / 512, 1e-9);
  EXPECT_NEAR(paper.points.back().y, ours.points[0].y * 406.01 / 20.05, 1e-9);
  EXPECT_EQ(ours.points[0].low.has_value(), true) << "two seeds make a band";
}

TEST(Charts, CostsAreRelativeToSinusoidalBesideThePapers) {
  const Chart chart = cost_charts(sample_results())[0];
  EXPECT_THAT(chart.categories, ElementsAre("ALiBi", "Sinusoidal", "Rotary", "T5 bias"));
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_NEAR(chart.series[0].points[3].y, 1 / 1.04, 1e-9);
  EXPECT_NEAR(chart.series[1].points[3].y, 14.4 / 28.5, 1e-9);
}

TEST(Charts, Ticks) {
  EXPECT_THAT(ticks_between(0, 10, false), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks_between(3, 450, true), ElementsAre(5, 10, 20, 50, 100, 200));
  EXPECT_THAT(ticks_between(6.4, 22, true), ElementsAre(7, 10, 15, 20));
  EXPECT_THAT(ticks_between(5, 5, false), ElementsAre(5));
  EXPECT_LE(ticks_between(1e-300, 1e300, true).size(), 601u);
  EXPECT_LE(ticks_between(1e15, 1e15 + 1, false).size(), 10u);
  EXPECT_LE(ticks_between(1e18, 1e18 + 256, false).size(), 10u) << "steps below the numbers' own spacing";
}

}  // namespace
}  // namespace longshot
