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

class LayoutTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Chromium::find().empty()) GTEST_SKIP() << "chromium is not installed: the page's layout was NOT tested";
    (void)::signal(SIGPIPE, SIG_IGN);
    dir_ = fs::temp_directory_path() / fmt::format("longshot-layout-{}", ::getpid());
    make_directories(dir_ / "profile");
  }
  void TearDown() override {
    std::error_code ignored;
    if (!dir_.empty()) fs::remove_all(dir_, ignored);
  }

  void open(Chromium& browser, const Size& size, const std::string& chart_js) {
    name_ = fmt::format("{}x{}", size.methods, size.seeds);
    const Results results = many_results(size.methods, size.seeds, 32);
    browser.open(write_report(results, dir_, {.figures = false, .chart_js = chart_js}).page, 1280, 900);
  }

  // As seen on a screen or sheet of that width; details are open, but for those of many runs.
  static void show(Chromium& browser, int width, const std::string& media, const std::string& scheme) {
    browser.call("Emulation.setDeviceMetricsOverride",
                 {{"width", width}, {"height", 900}, {"deviceScaleFactor", 1}, {"mobile", false}});
    browser.call("Emulation.setEmulatedMedia",
                 {{"media", media}, {"features", {{{"name", "prefers-color-scheme"}, {"value", scheme}}}}});
    browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
  }

  void picture(Chromium& browser, const std::string& name) const {
    if (const char* dir = std::getenv("LONGSHOT_SCREENSHOTS"))
      browser.save("Page.captureScreenshot", {{"format", "png"}, {"captureBeyondViewport", true}},
                   fs::path(dir) / fmt::format("{}-{}.png", name, name_));
  }

  static constexpr Size kSizes[] = {{2, 1}, {2, 5}, {5, 1}, {5, 5}, {12, 1}, {12, 5}};
  fs::path dir_;
  std::string name_;
};

// The first rows of a table stand for the others.
constexpr const char* kElements =
    R"js(globalThis.elements = () => document.querySelectorAll("body *:not(tr:nth-child(n + 4) *)");)js";

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
  for (const element of elements()) {
    const box = element.getBoundingClientRect(), scroll = element.parentElement.closest(".scroll");
    if (box.width === 0 || element.closest(".skip") || (scroll && getComputedStyle(scroll).overflowX === "auto")) continue;
    if (box.left < -0.5 || box.right > width + 0.5) faults.push(element.tagName + " " + element.className + ": " + element.textContent.slice(0, 40));
  }
  return faults.slice(0, 10);
})())js";

// A table wider than its box is marked, and only such a one.
constexpr const char* kHints = R"js([...document.querySelectorAll(".scroll")].filter((scroll) => {
  if (scroll.closest("details:not([open])")) return false;
  const wide = scroll.scrollWidth > scroll.clientWidth + 1, hint = scroll.parentElement.querySelector(".hint");
  return wide !== (getComputedStyle(hint).display !== "none") || wide !== (scroll.tabIndex === 0 && scroll.hasAttribute("tabindex"));
}).map((scroll) => scroll.parentElement.id))js";

// Text whose colour is nearer than 4.5 : 1 to what lies behind it (WCAG 2, level AA).
constexpr const char* kFaint = R"js((() => {
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const opacity = (element) => (element ? Number(getComputedStyle(element).opacity) * opacity(element.parentElement) : 1);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const faults = new Set();
  for (const element of elements()) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) || /SCRIPT|title/.test(element.tagName)) continue;
    if (element.getClientRects().length === 0) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(element.closest("svg") ? style.fill : style.color)), light(behind(element))];
    const ratio = opacity(element) < 1 ? 0 : (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faults.add(element.tagName + "." + element.getAttribute("class") + " " + ratio.toFixed(2));
  }
  return [...faults];
})())js";

TEST_F(LayoutTest, DrawingsInEveryWidthAndTheme) {
  Chromium browser(Chromium::find(), dir_ / "profile");
  for (const Size& size : kSizes) {
    open(browser, size, "/nowhere/chart.js");
    browser.evaluate(kElements);
    if (size.seeds == 1) browser.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
    for (const int width : {1280, 480}) {
      for (const char* scheme : {"light", "dark"}) {
        SCOPED_TRACE(fmt::format("{}, {} px, {}", name_, width, scheme));
        show(browser, width, "", scheme);
        picture(browser, fmt::format("drawn-{}-{}", width, scheme));
        EXPECT_THAT(browser.evaluate(kFaint), IsEmpty());
      }
      EXPECT_THAT(browser.evaluate(kCollisions), IsEmpty()) << name_ << ", " << width;
      EXPECT_THAT(browser.evaluate(kOutside), IsEmpty()) << name_ << ", " << width;
      EXPECT_THAT(browser.evaluate(kHints), IsEmpty()) << name_ << ", " << width;
    }
  }
}

TEST_F(LayoutTest, LiveAndOnPaper) {
  if (!fs::exists(kChartJs)) GTEST_SKIP() << kChartJs << " is not installed: the live charts were NOT tested";
  Chromium browser(Chromium::find(), dir_ / "profile");
  for (const Size& size : kSizes) {
    open(browser, size, kChartJs);
    browser.evaluate(kElements);
    for (const int width : {1280, 480}) {
      show(browser, width, "", width == 480 ? "dark" : "light");
      picture(browser, fmt::format("live-{}", width));
      EXPECT_THAT(browser.evaluate(kOutside), IsEmpty()) << name_ << ", " << width;
    }
    // A4 without its margins is 182 mm = 688 px wide.
    show(browser, 688, "print", "dark");
    picture(browser, "paper");
    EXPECT_THAT(browser.evaluate(kCollisions), IsEmpty()) << name_;
    EXPECT_THAT(browser.evaluate(kOutside), IsEmpty()) << name_;
    EXPECT_THAT(browser.evaluate(kFaint), IsEmpty()) << name_;
    const Json narrow = browser.evaluate(R"js([...document.querySelectorAll("svg.chart")].filter((svg) =>
        svg.getBoundingClientRect().width < 0.95 * document.documentElement.clientWidth).length)js");
    EXPECT_EQ(narrow, 0) << "on paper charts have the full width";
    const Json buttons = browser.evaluate(R"js([...document.querySelectorAll("nav, .csv, .hint, .controls, .skip")]
        .filter((element) => element.getClientRects().length > 0).length)js");
    EXPECT_EQ(buttons, 0) << "on paper nothing can be clicked";
    if (const char* dir = std::getenv("LONGSHOT_SCREENSHOTS"))
      browser.save("Page.printToPDF", {{"printBackground", false}, {"preferCSSPageSize", true}},
                   fs::path(dir) / fmt::format("paper-{}.pdf", name_));
  }
}

// The checks above see what they are for.
TEST_F(LayoutTest, TheChecksSeeBrokenPages) {
  Chromium browser(Chromium::find(), dir_ / "profile");
  open(browser, {2, 1}, "/nowhere/chart.js");
  browser.evaluate(kElements);
  show(browser, 480, "", "light");
  browser.evaluate(R"js((() => {
    const svg = document.querySelector("svg.chart"), tick = svg.querySelector(".tick");
    svg.appendChild(tick.cloneNode(true)).setAttribute("data-copy", "");
    const cut = svg.appendChild(tick.cloneNode(true));
    cut.setAttribute("x", 519), cut.setAttribute("y", 200), cut.setAttribute("class", "tick start");
    document.querySelector("footer").style.width = "700px";
    document.querySelector("footer").style.color = "#999";
    document.querySelector(".wide .hint").style.display = "none";
  })())js");
  EXPECT_GE(browser.evaluate(kCollisions).size(), 2u);
  EXPECT_GE(browser.evaluate(kOutside).size(), 1u);
  EXPECT_THAT(browser.evaluate(kHints), testing::SizeIs(1));
  EXPECT_THAT(browser.evaluate(kFaint), testing::SizeIs(1));
}

// Tab reaches the skip link first; a legend's button says what it is and answers to the keyboard.
TEST_F(LayoutTest, KeyboardAndScreenReader) {
  Chromium browser(Chromium::find(), dir_ / "profile");
  open(browser, {2, 1}, "/nowhere/chart.js");
  const auto press = [&](const char* key, int code, const char* text) {
    browser.call("Input.dispatchKeyEvent",
                 {{"type", "keyDown"}, {"key", key}, {"windowsVirtualKeyCode", code}, {"text", text}});
    browser.call("Input.dispatchKeyEvent", {{"type", "keyUp"}, {"key", key}, {"windowsVirtualKeyCode", code}});
  };
  press("Tab", 9, "");
  EXPECT_EQ(browser.evaluate("document.activeElement.className"), "skip");
  EXPECT_EQ(browser.evaluate("document.activeElement.getBoundingClientRect().left >= 0"), true);
  browser.evaluate("document.querySelector('.legend button').focus()");
  press(" ", 32, " ");
  EXPECT_EQ(browser.evaluate("document.activeElement.getAttribute('aria-pressed')"), "false");
  const Json nameless = browser.evaluate(
      R"js([...document.querySelectorAll("button, a, canvas, svg.chart, nav, [role=img], [role=group], [role=region], table")]
    .filter((e) => !(e.getAttribute("aria-label") || e.textContent || "").trim() && !document.getElementById(e.getAttribute("aria-labelledby")))
    .map((e) => e.outerHTML.slice(0, 80)))js");
  EXPECT_THAT(nameless, IsEmpty());
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('th:not([scope])').length"), 0);
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('svg.chart:not([role=img])').length"), 0);
}

}  // namespace
}  // namespace longshot
