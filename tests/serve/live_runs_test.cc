// What the live view makes of directories, whole, growing, broken and hostile.
#include "serve/live_runs.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/clock.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class LiveRunsTest : public testing::Test {
 protected:
  fs::path write_run(const std::string& name, int64_t steps) {
    const fs::path dir = dir_ / "runs" / name;
    make_directories(dir);
    std::ofstream(dir / "config.toml") << "position = \"alibi\"\nlength = 64\nsteps = 1000\n";
    for (int64_t step = 1; step <= steps; ++step) add_step(dir, step);
    return dir;
  }
  static void add_step(const fs::path& dir, int64_t step) {
    const auto s = static_cast<double>(step);
    append_record(RunDir(dir).metrics(), {{"step", step},
                                          {"seconds", 0.5 * s},
                                          {"loss", 2 + 3 / s},
                                          {"valid_loss", 2.5 + 3 / s},
                                          {"tokens_per_second", 1000}});
  }
  std::vector<std::string> dirs() const { return {(dir_ / "runs").string()}; }
  ScratchDir dir_;
};

TEST_F(LiveRunsTest, ARunThatTrains) {
  write_run("one", 100);
  const std::vector<LiveRun> runs = read_live_runs(dirs());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].record.name, "one");
  EXPECT_NEAR(*runs[0].seconds_left, 450, 1e-6);
  const std::string html = live_runs_html(runs);
  EXPECT_THAT(html, AllOf(HasSubstr("100 of 1000"), HasSubstr("training"), HasSubstr("7 min 30 s"), HasSubstr("2.0300"),
                          HasSubstr("2.5300"), HasSubstr("1.00k"), HasSubstr("Validation loss"), HasSubstr("<svg")));
}

TEST_F(LiveRunsTest, ExperimentsRunsAndNothing) {
  EXPECT_TRUE(read_live_runs(dirs()).empty());
  EXPECT_THAT(live_runs_html({}), HasSubstr("No run"));
  write_run("b", 3), write_run("a", 3);
  make_directories(dir_ / "runs/c/runs");
  std::ofstream(dir_ / "runs/c/compare.json") << "{}";
  fs::rename(dir_ / "runs/b", dir_ / "runs/c/runs/inner");
  const auto runs = read_live_runs(dirs());
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].record.name, "a");
  EXPECT_EQ(runs[1].record.name, "inner");
  EXPECT_EQ(read_live_runs({(dir_ / "runs/a").string()}).size(), 1u) << "a run itself";
}

TEST_F(LiveRunsTest, BrokenAndHostileFilesAreShownAsText) {
  const fs::path bad = write_run("<img src=x onerror=alert(1)>", 3);
  std::ofstream(bad / "metrics.jsonl") << "{\"step\": \"<script>\"}\nnot json\n";
  write_run("good", 3);
  write_atomically(write_run("empty", 0) / "metrics.jsonl", "");
  const std::string html = live_runs_html(read_live_runs(dirs()));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<img")), Not(HasSubstr("<script")), HasSubstr("&lt;img"), HasSubstr("good"),
                          HasSubstr("class=\"problem\"")));
}

TEST_F(LiveRunsTest, ALongCurveIsThinnedOut) {
  write_run("long", 5000);
  EXPECT_LT(live_runs_html(read_live_runs(dirs())).size(), 200'000u);
}

TEST_F(LiveRunsTest, WhatGrowsIsReadAgain) {
  const fs::path run = write_run("one", 3);
  LiveRuns live(dirs());
  const auto shows = [&](const std::string& text) {
    for (const double end = seconds_now() + 20; seconds_now() < end;) {
      if (live.snapshot().html.find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  };
  ASSERT_TRUE(shows("3 of 1000"));
  const int64_t version = live.snapshot().version;
  add_step(run, 4);
  ASSERT_TRUE(shows("4 of 1000"));
  EXPECT_GT(live.snapshot().version, version);
  EXPECT_THROW(LiveRuns({(dir_ / "nowhere").string()}), Error);
}

}  // namespace
}  // namespace longshot
