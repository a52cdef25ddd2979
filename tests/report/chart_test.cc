// What is the same however a chart is drawn: who can be told from whom, ranges, words.
#include "report/chart.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/charts.h"
#include "report/many.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Rgb = std::array<double, 3>;  // linear light, 0 .. 1

Rgb linear(const std::string& hex) {
  Rgb rgb;
  for (size_t i = 0; i < 3; ++i) {
    const double v = std::stoi(hex.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    rgb[i] = v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
  }
  return rgb;
}

double luminance(const Rgb& c) { return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; }

// (L1 + 0.05) / (L2 + 0.05), the lighter one above (WCAG 2).
double contrast(const std::string& a, const std::string& b) {
  const double x = luminance(linear(a)), y = luminance(linear(b));
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

using Matrix = std::array<Rgb, 3>;
// Machado, Oliveira, Fernandes 2009, severity 1.
constexpr Matrix kNormal{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
constexpr Matrix kProtanopia{
    {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}};
constexpr Matrix kDeuteranopia{
    {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}};
constexpr Matrix kTritanopia{
    {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}};

// CIE L*a*b* of what such eyes see.
Rgb seen(const Matrix& eyes, const std::string& hex) {
  const Rgb in = linear(hex);
  Rgb c;
  for (size_t i = 0; i < 3; ++i)
    c[i] = std::clamp(eyes[i][0] * in[0] + eyes[i][1] * in[1] + eyes[i][2] * in[2], 0.0, 1.0);
  const auto f = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116; };
  const double x = f((0.4124564 * c[0] + 0.3575761 * c[1] + 0.1804375 * c[2]) / 0.95047);
  const double y = f(luminance(c)), z = f((0.0193339 * c[0] + 0.1191920 * c[1] + 0.9503041 * c[2]) / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

double distance(const Rgb& a, const Rgb& b) { return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]); }

// Two are told apart by colour, to every eye, or by both marker and dash. A distance of 20 is some ten times what can
// just be told.
TEST(Palette, EveryPairIsToldApartByEveryEye) {
  for (const char* PaletteEntry::*theme : {&PaletteEntry::light, &PaletteEntry::dark})
    for (int a = 0; a < kPaletteSize; ++a)
      for (int b = 0; b < a; ++b) {
        const bool other_lines = kPalette[a].marker != kPalette[b].marker && kPalette[a].dash != kPalette[b].dash;
        for (const Matrix& eyes : {kNormal, kProtanopia, kDeuteranopia, kTritanopia})
          EXPECT_TRUE(other_lines || distance(seen(eyes, kPalette[a].*theme), seen(eyes, kPalette[b].*theme)) > 20)
              << a << " and " << b << ": " << kPalette[a].*theme << ' ' << kPalette[b].*theme;
      }
}

TEST(Palette, TwelveMethodsDifferInMarkerAlone) {  // printed without colour
  for (int a = 0; a < kGrey; ++a)
    for (int b = 0; b < a; ++b) EXPECT_NE(kPalette[a].marker, kPalette[b].marker) << a << " and " << b;
}

TEST(Palette, LinesShowOnThePage) {  // 3 : 1, WCAG 2 for what is not text
  for (const PaletteEntry& entry : kPalette) {
    EXPECT_GT(contrast(entry.light, "#ffffff"), 3) << entry.light;
    EXPECT_GT(contrast(entry.dark, "#14181c"), 3) << entry.dark;
  }
}

TEST(Palette, AMethodLooksTheSameInEveryChartAndTwelveLookDifferent) {
  const Results results = many_results(12, 2);
  std::map<std::string, std::pair<int, int>> looks;
  for (const Chart& chart : all_charts(results)) {
    if (chart.kind == Chart::Kind::kBars || chart.id == "grid") continue;
    std::set<std::pair<int, int>> here;
    for (const Series& s : chart.series) {
      if (s.overlay) continue;
      const std::pair look{s.colour, s.drawn_dash()};
      EXPECT_TRUE(here.insert(look).second) << chart.id << ": " << s.label << " looks like another";
      EXPECT_EQ(looks.emplace(s.label, look).first->second, look) << chart.id << ": " << s.label;
    }
  }
  EXPECT_EQ(looks.size(), 12u);
}

Chart line(const std::string& id, std::vector<ChartPoint> points) {
  return {.id = id, .title = id, .y = {.label = "loss"}, .series = {{.label = "m", .points = std::move(points)}}};
}

TEST(ChartRange, NeighboursOfOneQuantityShareOne) {
  std::vector<Chart> charts{line("a", {{1, 2}, {2, 4}}), line("b", {{1, 1}, {2, 3}}), line("c", {{1, 5}, {2, 6}})};
  charts[2].y.label = "another quantity";
  share_y_range(charts);
  const Range2 a = range_of(charts[0], false), b = range_of(charts[1], false), c = range_of(charts[2], false);
  EXPECT_EQ(a.y_least, b.y_least);
  EXPECT_EQ(a.y_most, b.y_most);
  EXPECT_LT(a.y_least, 1);
  EXPECT_GT(a.y_most, 4);
  EXPECT_GT(c.y_least, 4);
  EXPECT_EQ(charts[0].caption(), "");
}

TEST(ChartRange, TenfoldApartTheySaySo) {
  std::vector<Chart> charts{line("a", {{1, 0}, {2, 0.25}}), line("b", {{1, 0}, {2, 3}})};
  share_y_range(charts);
  EXPECT_LT(range_of(charts[0], false).y_most, 0.3);
  for (const Chart& chart : charts) EXPECT_THAT(chart.caption(), HasSubstr("Its y axis is its own"));
}

TEST(ChartRange, TheStartOfTrainingRunsOutOfThePicture) {
  std::vector<ChartPoint> points;
  for (int step = 0; step <= 100; ++step)
    points.push_back({static_cast<double>(step), step < 10 ? 9.0 : 3.0 - 0.01 * step});
  Chart chart = line("training", points);
  EXPECT_GT(range_of(chart, false).y_most, 9);
  leave_out_start(chart);
  EXPECT_LT(range_of(chart, false).y_most, 3.1);
  EXPECT_THAT(chart.caption(), HasSubstr("The start, above 2.95, runs out of the picture."));
  chart.series[0].points[90].y = 7;  // a run that breaks late stays in sight
  EXPECT_GT(range_of(chart, false).y_most, 7);
}

TEST(ChartWords, SpeakOfBandsOnlyWhereOneIsDrawn) {
  const Results one = many_results(3, 1), five = many_results(3, 5);
  for (const Chart& chart : training_charts(one)) EXPECT_THAT(chart.caption(), Not(HasSubstr("span"))) << chart.id;
  for (const Chart& chart : training_charts(five)) EXPECT_THAT(chart.caption(), HasSubstr("Bands span the seeds."));
  Chart chart = line("a", {{1, 2, 1.5, 2.5}, {2, 3, 3, 3}});
  EXPECT_EQ(chart.caption(), "Whiskers span the seeds.");
  chart.series.push_back({.label = "n", .spread = "two errors", .points = {{1, 2, 1, 3}, {2, 2, 1, 3}}});
  EXPECT_EQ(chart.caption(), "Bands and whiskers span the seeds or two errors.");
  chart.series.resize(1), chart.series[0].points = {{1, 2}, {2, 3}};
  EXPECT_EQ(chart.caption(), "");
}

TEST(ChartWords, SayWhatIsDrawn) {
  Chart chart = line("Loss", {{64, 2}, {128, 3}, {256, 4.5}});
  chart.x.label = "test length";
  EXPECT_EQ(chart.in_words(), "Loss. Lines: loss against test length. m: 2 at 64, 4.5 at 256.");
  const Chart bars{.id = "b",
                   .title = "Cost",
                   .kind = Chart::Kind::kBars,
                   .y = {.label = "relative"},
                   .categories = {"A", "B"},
                   .series = {{.label = "measured", .points = {{0, 1}, {1, 2.5}}}}};
  EXPECT_EQ(bars.in_words(), "Cost. Bars: relative. measured: A 1, B 2.5.");
}

TEST(ChartMarkers, ALongLineHasAFewAtOtherPlacesThanItsNeighbours) {
  Chart chart = line("a", std::vector<ChartPoint>(300));
  chart.series.push_back(chart.series[0]);
  chart.series.push_back({.label = "short", .points = std::vector<ChartPoint>(40)});
  std::array<std::set<size_t>, 3> marked;
  for (size_t s = 0; s < 3; ++s)
    for (size_t i = 0; i < chart.series[s].points.size(); ++i)
      if (marked_points(chart, s).at(i)) marked[s].insert(i);
  EXPECT_EQ(marked[0].size(), 9u);
  EXPECT_EQ(marked[2].size(), 40u);
  for (const size_t i : marked[0]) EXPECT_FALSE(marked[1].contains(i));
}

TEST(ChartTicks, HaveNoExponentWhereDigitsDo) {
  std::vector<std::string> texts;
  for (const double tick : {64.0, 1048576.0, 0.05, 1e7, 1e-13}) texts.push_back(tick_text(tick));
  EXPECT_THAT(texts, ElementsAre("64", "1048576", "0.05", "1e+07", "0"));
}

}  // namespace
}  // namespace longshot
