// The page in a real browser: it opens without an error, draws, answers to hovering and hiding, asks the
// network for nothing. LONGSHOT_SCREENSHOTS=DIR keeps pictures of it.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "report/chromium.h"
#include "report/report.h"
#include "report/sample.h"

namespace longshot {

namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class BrowserTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Chromium::find().empty()) GTEST_SKIP() << "chromium is not installed: the report was NOT tested in a browser";
    ::signal(SIGPIPE, SIG_IGN);
    dir_ = fs::temp_directory_path() / fmt::format("longshot-browser-{}", ::getpid());
    make_directories(dir_ / "profile");
  }
  void TearDown() override {
    std::error_code ignored;
    if (!dir_.empty()) fs::remove_all(dir_, ignored);
  }

  fs::path page(const ReportOptions& options) { return write_report(sample_results(), dir_, options).page; }

  static void expect_quiet(const Chromium& browser) {
    for (const Json& e : browser.events()) {
      const std::string method = e.value("method", "");
      for (const char* complaint : {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"})
        EXPECT_NE(method, complaint) << e.dump().substr(0, 600);
      if (method == "Network.requestWillBeSent") {
        EXPECT_THAT(e["params"]["request"]["url"].get<std::string>(), testing::StartsWith("file://"));
        EXPECT_EQ(e["params"]["type"], "Document") << e.dump();
      }
    }
  }

  // A copy is read: reading the chart's own canvas again and again makes the browser complain.
  static void open(Chromium& browser, const fs::path& page, int width) {
    browser.open(page, width, 900);
    browser.evaluate(R"js(globalThis.canvasPixels = (canvas) => {
      const copy = document.createElement("canvas");
      copy.width = canvas.width, copy.height = canvas.height;
      const context = copy.getContext("2d", {willReadFrequently: true});
      context.drawImage(canvas, 0, 0);
      return context.getImageData(0, 0, copy.width, copy.height).data;
    })js");
  }

  // Pixels of a chart's canvas that have nearly the colour of palette entry `colour`.
  static int pixels(Chromium& browser, const std::string& chart, int colour) {
    return browser.evaluate(fmt::format(R"js((() => {{
      const hex = getComputedStyle(document.documentElement).getPropertyValue("--c{}").trim();
      const want = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
      const data = canvasPixels(document.querySelector("#chart-{} canvas"));
      let count = 0;
      for (let i = 0; i < data.length; i += 4)
        if (data[i + 3] > 200 && want.every((v, k) => Math.abs(data[i + k] - v) < 10)) ++count;
      return count;
    }})())js",
                                        colour, chart));
  }

  // The middle of an element after scrolling it into view.
  static std::pair<double, double> place(Chromium& browser, const std::string& selector) {
    const Json at = browser.evaluate(fmt::format(R"js((() => {{
      const element = document.querySelector('{}');
      element.scrollIntoView({{block: "center", behavior: "instant"}});
      const box = element.getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2];
    }})())js",
                                                 selector));
    return {at[0], at[1]};
  }

  static void picture(Chromium& browser, const std::string& name) {
    if (const char* dir = std::getenv("LONGSHOT_SCREENSHOTS"))
      browser.save("Page.captureScreenshot", {{"format", "png"}, {"captureBeyondViewport", true}},
                   fs::path(dir) / name);
  }

  fs::path dir_;
};

// The script chooses ticks for whatever is visible. At first that is all the picture shows: both follow one rule.
TEST_F(BrowserTest, LiveChartsHaveTheTicksOfThePictures) {
  if (!fs::exists(kChartJs)) GTEST_SKIP() << kChartJs << " is not installed: the live charts were NOT tested";
  Chromium browser(Chromium::find(), dir_ / "profile");
  open(browser, page({.figures = false}), 1280);
  const Json charts = browser.evaluate(R"js([...document.querySelectorAll("figure.live")].map((figure) => {
      const chart = Chart.getChart(figure.querySelector("canvas"));
      return {id: figure.id, kind: chart.config.type, live: chart.scales.y.ticks.map((tick) => tick.value),
              drawn: [...figure.querySelectorAll("svg.chart .tick.end")].map((text) => Number(text.textContent))};
    }))js");
  int lines = 0;
  for (const Json& chart : charts) {
    if (chart["kind"] != "line") continue;  // Chart.js finds room for bars by itself
    ++lines;
    const auto live = chart["live"].get<std::vector<double>>(), drawn = chart["drawn"].get<std::vector<double>>();
    EXPECT_THAT(live, testing::Pointwise(testing::DoubleNear(1e-5 * (1 + std::abs(drawn.back()))), drawn))
        << chart["id"];
  }
  EXPECT_GT(lines, 5);
}

TEST_F(BrowserTest, ChartsDrawHoverAndHideAndNothingIsRequested) {
  if (!fs::exists(kChartJs)) GTEST_SKIP() << kChartJs << " is not installed: the live charts were NOT tested";
  Chromium browser(Chromium::find(), dir_ / "profile");
  open(browser, page({.figures = false}), 1280);
  expect_quiet(browser);

  const int canvases = browser.evaluate("document.querySelectorAll('figure.live canvas').length");
  EXPECT_EQ(canvases, static_cast<int>(browser.evaluate("document.querySelectorAll('figure.chart').length")));
  EXPECT_GT(canvases, 10);
  const Json blank = browser.evaluate(R"js([...document.querySelectorAll("figure.chart")].filter((figure) => {
      return canvasPixels(figure.querySelector("canvas")).filter((v, i) => i % 4 === 3 && v > 0).length < 2000;
    }).map((figure) => figure.id))js");
  EXPECT_THAT(blank, IsEmpty());

  // ALiBi is colour 0 and the first series of the first chart.
  const std::string chart = "perplexity-1-L64";
  EXPECT_GT(pixels(browser, chart, 0), 300);
  EXPECT_GT(pixels(browser, chart, 1), 300);

  place(browser, "#chart-" + chart + " canvas");
  const Json point = browser.evaluate(R"js((() => {
      const canvas = document.querySelector("#chart-perplexity-1-L64 canvas");
      const chart = Chart.getChart(canvas), box = canvas.getBoundingClientRect();
      const index = chart.data.datasets.findIndex((d) => d.label === "ALiBi");
      const point = chart.getDatasetMeta(index).data[2];
      return [box.x + point.x, box.y + point.y];
    })())js");
  browser.move_mouse(point[0], point[1]);
  const std::string tooltip = browser.evaluate(R"js(new Promise((done) => requestAnimationFrame(() => {
      const {tooltip} = Chart.getChart(document.querySelector("#chart-perplexity-1-L64 canvas"));
      done(tooltip.opacity + "|" + tooltip.title.join() + "|" + tooltip.body.map((b) => b.lines.join()).join());
    })))js");
  EXPECT_THAT(tooltip, HasSubstr("1|test length (bytes): 256|"));
  EXPECT_THAT(tooltip, HasSubstr("ALiBi: "));
  EXPECT_THAT(tooltip, HasSubstr("Sinusoidal: "));
  EXPECT_THAT(tooltip, HasSubstr(", the seeds)"));
  EXPECT_THAT(tooltip, testing::Not(HasSubstr("undefined")));
  picture(browser, "hover.png");
  browser.move_mouse(2, 2);

  const auto [x, y] = place(browser, "#chart-" + chart + " .legend button");
  browser.click(x, y);
  EXPECT_EQ(
      browser.evaluate("document.querySelector('#chart-perplexity-1-L64 .legend button').getAttribute('aria-pressed')"),
      "false");
  EXPECT_LT(pixels(browser, chart, 0), 5);
  EXPECT_GT(pixels(browser, chart, 1), 300);
  browser.click(x, y);
  EXPECT_GT(pixels(browser, chart, 0), 300);

  const int before = pixels(browser, chart, 1);
  const auto [ox, oy] = place(browser, "#overlay");
  browser.click(ox, oy);
  EXPECT_NE(pixels(browser, chart, 1), before);
  picture(browser, "overlay.png");
  expect_quiet(browser);
}

TEST_F(BrowserTest, ThemesAndPaper) {
  if (!fs::exists(kChartJs)) GTEST_SKIP() << kChartJs << " is not installed: the live charts were NOT tested";
  Chromium browser(Chromium::find(), dir_ / "profile");
  const auto background = [&] { return browser.evaluate("getComputedStyle(document.body).backgroundColor"); };
  open(browser, page({.figures = false}), 1280);
  EXPECT_EQ(background(), "rgb(255, 255, 255)");
  EXPECT_EQ(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), true)
      << "the page scrolls sideways";
  picture(browser, "light.png");
  const auto [x, y] = place(browser, "#theme");
  browser.click(x, y);
  EXPECT_EQ(background(), "rgb(20, 24, 28)");
  EXPECT_GT(pixels(browser, "perplexity-1-L64", 0), 300) << "the lines must take the dark palette";
  picture(browser, "dark-toggled.png");
  browser.click(x, y);
  EXPECT_EQ(background(), "rgb(255, 255, 255)");

  browser.call("Emulation.setEmulatedMedia", {{"features", {{{"name", "prefers-color-scheme"}, {"value", "dark"}}}}});
  open(browser, dir_ / "report.html", 1280);
  EXPECT_EQ(background(), "rgb(20, 24, 28)");
  picture(browser, "dark.png");
  browser.call("Emulation.setEmulatedMedia", {{"media", "print"}});
  EXPECT_EQ(background(), "rgb(255, 255, 255)");
  EXPECT_EQ(browser.evaluate("getComputedStyle(document.querySelector('figure.live canvas')).display"), "none");
  EXPECT_EQ(browser.evaluate("getComputedStyle(document.querySelector('figure.live svg.chart')).display"), "block");
  if (const char* dir = std::getenv("LONGSHOT_SCREENSHOTS"))
    browser.save("Page.printToPDF", {{"printBackground", false}, {"preferCSSPageSize", true}},
                 fs::path(dir) / "report.pdf");
  expect_quiet(browser);

  browser.call("Emulation.setEmulatedMedia", {{"media", ""}});
  open(browser, dir_ / "report.html", 390);
  EXPECT_EQ(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), true) << "too wide for a telephone";
}

TEST_F(BrowserTest, WithoutChartJsTheDrawingsStayAndTheLegendHides) {
  Chromium browser(Chromium::find(), dir_ / "profile");
  open(browser, page({.figures = false, .chart_js = "/nowhere/chart.js"}), 1280);
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('figure.live').length"), 0);
  EXPECT_THAT(browser.evaluate("document.querySelector('.warning').textContent").get<std::string>(),
              HasSubstr("libjs-chart.js"));
  EXPECT_GT(
      browser.evaluate("document.querySelector('#chart-grid svg.chart').getBoundingClientRect().height").get<double>(),
      200);
  const std::string group =
      "getComputedStyle(document.querySelector('#chart-grid svg.chart g[data-series=\"0\"]')).display";
  EXPECT_EQ(browser.evaluate(group), "inline");
  const auto [x, y] = place(browser, "#chart-grid .legend button");
  browser.click(x, y);
  EXPECT_EQ(browser.evaluate(group), "none");
  picture(browser, "fallback.png");
  expect_quiet(browser);
}

}  // namespace
}  // namespace longshot
