// `longshot compare` as a user meets it.
#include "base/rng.h"
#include "cli/support.h"
#include "run/results.h"

namespace longshot {
namespace {

using testing::HasSubstr;

std::vector<std::string> compare_arguments(const ScratchDir& dir, const std::string& out) {
  return {"compare",
          "--data",
          (dir / "data").string(),
          "--out",
          (dir / out).string(),
          "--positions",
          "alibi",
          "--length",
          "16",
          "--layers",
          "2",
          "--dim",
          "32",
          "--heads",
          "4",
          "--steps",
          "40",
          "--batch-tokens",
          "320",
          "--warmup",
          "2",
          "--save-every",
          "5",
          "--test-lengths",
          "64,16",
          "--threads",
          "1",
          "--modes",
          "nonoverlapping,sliding"};
}

// Without what depends on the hour and the machine's mood.
void drop_timings(Json& json) {
  if (json.is_object()) {
    for (const char* key : {"date", "command", "config", "seconds", "train_seconds", "train_tokens_per_second",
                            "train_peak_memory_bytes", "tokens_per_second", "peak_memory_bytes"}) {
      json.erase(key);
    }
  }
  if (json.is_structured()) {
    for (Json& member : json) drop_timings(member);
  }
}

Json results_of(const ScratchDir& dir, const std::string& out) {
  Json json = read_json(dir / out / "results.json");
  drop_timings(json);
  return json;
}

TEST(Compare, KilledAndRestartedGivesTheSameResults) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::vector<std::string> more = {"--positions", "alibi,t5", "--seeds", "1,2"};
  auto whole = compare_arguments(dir, "whole"), killed = compare_arguments(dir, "killed");
  whole.insert(whole.end(), more.begin(), more.end());
  killed.insert(killed.end(), more.begin(), more.end());
  ASSERT_EQ(longshot_run(dir, joined(whole)).code, 0);
  int kills = 0;
  for (uint64_t i = 0; i < 8; ++i) {
    const auto delay = std::chrono::milliseconds(50 + random_bits(2, Stream::kTest, i) % 250);
    kills += WIFSIGNALED(run_and_signal(killed, delay, i % 2 ? SIGKILL : SIGINT));
  }
  EXPECT_GT(kills, 0) << "every run ended before it was killed: the test shows nothing";
  ASSERT_EQ(longshot_run(dir, joined(killed)).code, 0);
  EXPECT_EQ(results_of(dir, "whole"), results_of(dir, "killed"));
}

TEST(Compare, TrainsTheGridAndItsBaselines) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  auto arguments = compare_arguments(dir, "out");
  arguments.insert(arguments.end(), {"--train-lengths", "8,16", "--baseline-positions", "sinusoidal",
                                     "--baseline-lengths", "32", "--stride", "4"});
  const Outcome o = longshot_run(dir, joined(arguments));
  ASSERT_EQ(o.code, 0) << o.err;
  const fs::path path = dir / "out" / "results.json";
  const Results results = Results::from_json(read_json(path), path.string());
  ASSERT_EQ(results.runs.size(), 3u);
  EXPECT_EQ(results.runs[2].position, "sinusoidal");
  EXPECT_EQ(results.runs[2].train_length, 32);
  // Both lengths in both modes; decompositions for windows longer than those trained on.
  for (const RunRecord& run : results.runs) {
    ASSERT_EQ(run.evals.size(), 4u);
    for (const EvalRecord& eval : run.evals) EXPECT_EQ(eval.stride, eval.mode == "sliding" ? 4 : eval.length);
  }
  EXPECT_EQ(results.runs[0].decomposition.size(), 2u);
  EXPECT_EQ(results.runs[1].decomposition.size(), 1u);
  EXPECT_THAT(read_text(dir / "out" / "report.html"), HasSubstr("The saving"));
}

// Twice the time is about twice the steps; on a noisy machine at least more of them.
TEST(Compare, EqualTimeChoosesTheSteps) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const auto steps = [&](const std::string& out, const char* seconds) {
    auto arguments = compare_arguments(dir, out);
    arguments.insert(arguments.end(), {"--equal-time", seconds, "--save-every", "0"});
    const Outcome o = longshot_run(dir, joined(arguments));
    EXPECT_EQ(o.code, 0) << o.err;
    return read_json(dir / out / "results.json").at("runs").at(0).at("steps").get<int64_t>();
  };
  EXPECT_LT(steps("short", "0.2"), steps("long", "2"));
}

TEST(Compare, OtherOptionsNeedAnotherDirectory) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string arguments = joined(compare_arguments(dir, "out"));
  ASSERT_EQ(longshot_run(dir, arguments).code, 0);
  const Outcome o = longshot_run(dir, arguments + "--steps 41");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("other options"));
  EXPECT_EQ(longshot_run(dir, arguments + "--modes sideways").code, 2);
}

}  // namespace
}  // namespace longshot
