// The page in a real browser: a completion streams, a token shows what else was likely, runs appear. The network is asked
// for nothing but the server. LONGSHOT_SCREENSHOTS=DIR keeps pictures.
#include <cmath>
#include <cstdlib>

#include "report/chromium.h"
#include "serve/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class ServeBrowser : public ServeTest {
 protected:
  void SetUp() override {
    if (Chromium::find().empty()) GTEST_SKIP() << "chromium is not installed: the page was NOT tested in a browser";
    (void)::signal(SIGPIPE, SIG_IGN);
    make_directories(*dir_ / "profile");
  }
  std::string address() const { return fmt::format("http://127.0.0.1:{}/", port_); }

  // Waits for an expression to be true.
  static bool becomes(Chromium& browser, const std::string& expression) {
    const std::string script = fmt::format(
        "new Promise(done => {{ const look = n => {{ if ({0}) done(true); else if (n == 0) done(false); else "
        "setTimeout(() => look(n - 1), 20); }}; look(1500); }})",
        expression);
    return browser.evaluate(script).get<bool>();
  }
  static std::string text(Chromium& browser, const std::string& selector) {
    return browser.evaluate(fmt::format("document.querySelector('{}').textContent", selector)).get<std::string>();
  }
  static void picture(Chromium& browser, const std::string& name) {
    const char* dir = std::getenv("LONGSHOT_SCREENSHOTS");
    if (!dir) return;
    make_directories(dir);
    browser.save("Page.captureScreenshot", {{"format", "png"}, {"captureBeyondViewport", true}},
                 fs::path(dir) / (name + ".png"));
  }
  void expect_quiet(const Chromium& browser) const {
    for (const Json& e : browser.events()) {
      const std::string method = e.value("method", "");
      for (const char* complaint : {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"})
        EXPECT_NE(method, complaint) << e.dump().substr(0, 600);
      if (method == "Network.requestWillBeSent") {
        EXPECT_THAT(e["params"]["request"]["url"].get<std::string>(), StartsWith(address()));
      }
    }
  }
};

TEST_F(ServeBrowser, ACompletionStreamsAndRunsAppear) {
  ServeConfig config;
  config.runs = {(*dir_ / "").string()};
  start(config);
  Chromium browser(Chromium::find(), *dir_ / "profile");
  browser.open_address(address(), 1100, 1400);
  ASSERT_TRUE(becomes(browser, "!document.getElementById('playground').hidden"));
  EXPECT_THAT(text(browser, "#facts"), HasSubstr("tiny: alibi, trained on 24 tokens"));
  EXPECT_TRUE(becomes(browser, "document.querySelector('#prompt-facts').textContent.includes('16 tokens')"));

  browser.evaluate(
      "document.getElementById('prompt').value = 'The river <b>runs</b>';"
      "document.getElementById('max_tokens').value = 40; document.getElementById('start').click()");
  ASSERT_TRUE(becomes(browser, "document.getElementById('status').textContent.includes('ended by length')"))
      << text(browser, "#status");
  EXPECT_THAT(text(browser, "#status"), HasSubstr("40 tokens"));
  EXPECT_THAT(text(browser, "#status"), HasSubstr("2.6 times the training length 24"));
  EXPECT_THAT(text(browser, "#text"), StartsWith("The river <b>runs</b>")) << "text stays text";
  EXPECT_THAT(text(browser, "#text .wall"), HasSubstr("passes the training length, 24"));
  const Json made = complete({{"prompt", "The river <b>runs</b>"}, {"max_tokens", 40}, {"seed", 1}}).json();
  const std::string shown =
      browser.evaluate("[...document.querySelectorAll('.token')].map(t => t.textContent).join('')").get<std::string>();
  EXPECT_EQ(made["choices"][0]["text"], Json(shown));
  EXPECT_GT(browser
                .evaluate("new Set([...document.querySelectorAll('.token')].map(t => "
                          "getComputedStyle(t).backgroundColor)).size")
                .get<int>(),
            3)
      << "surprisal has colours";

  browser.evaluate("document.querySelector('.token').focus()");
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('#alternatives tr').length").get<int>(), 8);
  EXPECT_THAT(text(browser, "#alternatives"), HasSubstr("bits"));
  EXPECT_TRUE(browser.evaluate("document.querySelector('#surprisal path.line').getTotalLength() > 100").get<bool>());

  const std::string all = text(browser, "#text");
  browser.evaluate(
      "document.getElementById('context').value = 0; document.getElementById('context').dispatchEvent(new "
      "Event('input')); document.getElementById('start').click()");
  EXPECT_THAT(text(browser, "#context-text"), HasSubstr("4, within"));
  ASSERT_TRUE(becomes(browser, "document.getElementById('status').textContent.includes('ended by length')"));
  EXPECT_NE(text(browser, "#text"), all) << "what the model may see matters";

  ASSERT_TRUE(becomes(browser, "document.querySelectorAll('#runs figure svg.chart').length >= 2"));
  EXPECT_THAT(text(browser, "#runs"), HasSubstr("150 of 150"));
  EXPECT_TRUE(
      browser.evaluate("getComputedStyle(document.querySelector('#runs path.line')).stroke != 'none'").get<bool>());
  picture(browser, "serve-wide");
  browser.call("Emulation.setDeviceMetricsOverride",
               {{"width", 380}, {"height", 900}, {"deviceScaleFactor", 1}, {"mobile", false}});
  EXPECT_LE(browser.evaluate("document.documentElement.scrollWidth").get<int>(), 380);
  picture(browser, "serve-narrow");
  expect_quiet(browser);
}

TEST_F(ServeBrowser, AStopEndsTheStreamOnTheServerToo) {
  ServeConfig config;
  config.engine.length = 300'000;
  start(config);
  Chromium browser(Chromium::find(), *dir_ / "profile");
  browser.open_address(address(), 900, 900);
  ASSERT_TRUE(becomes(browser, "!document.getElementById('playground').hidden"));
  browser.evaluate("document.getElementById('max_tokens').value = 250000; document.getElementById('start').click()");
  ASSERT_TRUE(becomes(browser, "document.querySelectorAll('.token').length > 10"));
  browser.evaluate("document.getElementById('cancel').click()");
  ASSERT_TRUE(becomes(browser, "document.getElementById('status').textContent.includes('stopped after')"));
  EXPECT_TRUE(comes_true([&] { return metric("longshot_texts_total{ended=\"asked\"}") == 1; }));
}

}  // namespace
}  // namespace longshot
