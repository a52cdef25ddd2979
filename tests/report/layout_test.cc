// How the page looks with few and many methods and seeds, wide and narrow, light, dark and on paper: nothing overlaps,
// nothing is cut, everything can be read. LONGSHOT_SCREENSHOTS=DIR keeps pictures.
#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "report/chromium.h"
#include "report/many.h"
#include "report/report.h"

namespace longshot {
namespace {

using testing::IsEmpty;

struct Size {
  size_t methods;
  int64_t seeds;
};

class LayoutTest : public testing::TestWithParam<Size> {
 protected:
  void SetUp() override {
    if (Chromium::find().empty()) GTEST_SKIP() << "chromium is not installed: the page's layout was NOT tested";
    ::signal(SIGPIPE, SIG_IGN);
    dir_ = fs::temp_directory_path() / fmt::format("longshot-layout-{}", ::getpid());
    make_directories(dir_ / "profile");
  }
  void TearDown() override {
    std::error_code ignored;
    if (!dir_.empty()) fs::remove_all(dir_, ignored);
  }

  static void theme(Chromium& browser, const std::string& media, const std::string& scheme) {
    browser.call("Emulation.setEmulatedMedia",
                 {{"media", media}, {"features", {{{"name", "prefers-color-scheme"}, {"value", scheme}}}}});
  }

  static void picture(Chromium& browser, const std::string& name) {
    if (const char* dir = std::getenv("LONGSHOT_SCREENSHOTS"))
      browser.save("Page.captureScreenshot", {{"format", "png"}, {"captureBeyondViewport", true}},
                   fs::path(dir) / fmt::format("{}-{}x{}.png", name, GetParam().methods, GetParam().seeds));
  }

  fs::path dir_;
};

// Texts of one picture that share a part of their boxes, and texts that leave their picture. A pixel's overlap is the
// rounding of boxes.
constexpr const char* kCollisions = R"js((() => {
  const faults = [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    const texts = [...svg.querySelectorAll("text")].filter((t) => !t.closest(".off"))
      .map((t) => ({text: t.textContent, box: t.getBoundingClientRect()}));
    const where = svg.closest("figure").id || svg.closest("figure").textContent.slice(0, 30);
    texts.forEach((a, i) => {
      const e = 0.5;
      if (a.box.left < frame.left - e || a.box.right > frame.right + e || a.box.top < frame.top - e || a.box.bottom > frame.bottom + e)
        faults.push(where + ": cut: " + a.text);
      for (const b of texts.slice(i + 1))
        if (a.box.left < b.box.right - 1 && b.box.left < a.box.right - 1 && a.box.top < b.box.bottom - 1 && b.box.top < a.box.bottom - 1)
          faults.push(where + ": " + a.text + " on " + b.text);
    });
  }
  return faults;
})())js";

// Elements that stick out of the page, except inside what scrolls.
constexpr const char* kOutside = R"js((() => {
  const width = document.documentElement.clientWidth, faults = [];
  if (document.documentElement.scrollWidth > width) faults.push("the page scrolls sideways");
  for (const element of document.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect(), scroll = element.parentElement.closest(".scroll");
    if (box.width === 0 || element.closest(".skip") || (scroll && getComputedStyle(scroll).overflowX === "auto")) continue;
    if (box.left < -0.5 || box.right > width + 0.5) faults.push(element.tagName + " " + element.className + ": " + element.textContent.slice(0, 40));
  }
  return faults.slice(0, 10);
})())js";

// A table wider than its box is marked, and only such a one.
constexpr const char* kHints = R"js([...document.querySelectorAll(".scroll")].filter((scroll) => {
  if (scroll.clientWidth === 0) return false;
  const wide = scroll.scrollWidth > scroll.clientWidth + 1, hint = scroll.parentElement.querySelector(".hint");
  return wide !== (getComputedStyle(hint).display !== "none") || wide !== (scroll.tabIndex === 0 && scroll.hasAttribute("tabindex"));
}).map((scroll) => scroll.parentElement.id))js";

// Text whose colour is nearer than 4.5 : 1 to what lies behind it (WCAG 2, level AA).
constexpr const char* kFaint = R"js((() => {
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const faults = new Set();
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) || /SCRIPT|title/.test(element.tagName)) continue;
    if (element.getClientRects().length === 0) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(element.closest("svg") ? style.fill : style.color)), light(behind(element))];
    let opacity = 1;
    for (let e = element; e; e = e.parentElement) opacity *= Number(getComputedStyle(e).opacity);
    const ratio = opacity < 1 ? 0 : (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faults.add(element.tagName + "." + element.getAttribute("class") + " " + ratio.toFixed(2));
  }
  return [...faults];
})())js";

TEST_P(LayoutTest, DrawingsInEveryWidthAndTheme) {
  Chromium browser(Chromium::find(), dir_ / "profile");
  const fs::path page = write_report(many_results(GetParam().methods, GetParam().seeds), dir_,
                                     {.figures = false, .chart_js = "/nowhere/chart.js"})
                            .page;
  for (const int width : {1280, 480})
    for (const char* scheme : {"light", "dark"}) {
      theme(browser, "", scheme);
      browser.open(page, width, 900);
      browser.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)");
      browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
      SCOPED_TRACE(fmt::format("{} px, {}", width, scheme));
      picture(browser, fmt::format("drawn-{}-{}", width, scheme));
      EXPECT_THAT(browser.evaluate(kCollisions), IsEmpty());
      EXPECT_THAT(browser.evaluate(kOutside), IsEmpty());
      EXPECT_THAT(browser.evaluate(kHints), IsEmpty());
      EXPECT_THAT(browser.evaluate(kFaint), IsEmpty());
    }
}

TEST_P(LayoutTest, LiveAndOnPaper) {
  if (!fs::exists(kChartJs)) GTEST_SKIP() << kChartJs << " is not installed: the live charts were NOT tested";
  Chromium browser(Chromium::find(), dir_ / "profile");
  const fs::path page = write_report(many_results(GetParam().methods, GetParam().seeds), dir_, {.figures = false}).page;
  for (const int width : {1280, 480})
    for (const char* scheme : {"light", "dark"}) {
      theme(browser, "", scheme);
      browser.open(page, width, 900);
      SCOPED_TRACE(fmt::format("{} px, {}", width, scheme));
      picture(browser, fmt::format("live-{}-{}", width, scheme));
      EXPECT_THAT(browser.evaluate(kOutside), IsEmpty());
      EXPECT_THAT(browser.evaluate(kFaint), IsEmpty());
    }
  // A4 without its margins is 182 mm = 688 px wide.
  theme(browser, "print", "dark");
  browser.open(page, 688, 900);
  browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
  EXPECT_THAT(browser.evaluate(kCollisions), IsEmpty());
  EXPECT_THAT(browser.evaluate(kOutside), IsEmpty());
  EXPECT_THAT(browser.evaluate(kFaint), IsEmpty());
  const Json narrow = browser.evaluate(R"js([...document.querySelectorAll("svg.chart")].filter((svg) =>
      svg.getBoundingClientRect().width < 0.95 * document.documentElement.clientWidth).length)js");
  EXPECT_EQ(narrow, 0) << "on paper charts have the full width";
  const Json buttons = browser.evaluate(R"js([...document.querySelectorAll("nav, .csv, .hint, .controls, .skip")]
      .filter((element) => element.getClientRects().length > 0).length)js");
  EXPECT_EQ(buttons, 0) << "on paper nothing can be clicked";
  if (const char* dir = std::getenv("LONGSHOT_SCREENSHOTS"))
    browser.save(
        "Page.printToPDF",
        {{"printBackground", false}, {"preferCSSPageSize", true}, {"paperWidth", 8.27}, {"paperHeight", 11.69}},
        fs::path(dir) / fmt::format("paper-{}x{}.pdf", GetParam().methods, GetParam().seeds));
}

INSTANTIATE_TEST_SUITE_P(Page, LayoutTest,
                         testing::Values(Size{2, 1}, Size{2, 5}, Size{5, 1}, Size{5, 5}, Size{12, 1}, Size{12, 5}),
                         [](const auto& info) {
                           return fmt::format("{}methods{}seeds", info.param.methods, info.param.seeds);
                         });

}  // namespace
}  // namespace longshot
