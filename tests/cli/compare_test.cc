// `longshot compare` as a user meets it.
#include <nlohmann/json.hpp>

#include "base/lock.h"
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
                            "train_peak_memory_bytes", "tokens_per_second", "peak_memory_bytes", "speeds"}) {
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
    for (const EvalRecord& eval : run.evals)
      EXPECT_EQ(eval.stride, eval.mode == WindowMode::kSliding ? 4 : eval.length);
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

TEST(Compare, AnEqualTimeThatEndsInTheWarmUpIsRefused) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  auto arguments = compare_arguments(dir, "out");
  arguments.insert(arguments.end(), {"--equal-time", "0.001", "--warmup", "39"});
  const Outcome o = longshot_run(dir, joined(arguments));
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("--warmup (39) must be below --steps (10)"));
  EXPECT_FALSE(fs::exists(dir / "out/runs/alibi-L16-s1/equal-time.json")) << "a longer time would be refused too";
}

TEST(Compare, GrowsBySeedsMethodsAndLengths) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string arguments = joined(compare_arguments(dir, "out"));
  ASSERT_EQ(longshot_run(dir, arguments).code, 0);
  const std::string weights = read_text(dir / "out/runs/alibi-L16-s1/run.json");
  const Outcome more = longshot_run(dir, arguments + "--positions alibi,rotary --seeds 1,2");
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.err, testing::Not(HasSubstr("alibi-L16-s1:"))) << "it is finished";
  EXPECT_EQ(read_text(dir / "out/runs/alibi-L16-s1/run.json"), weights);
  EXPECT_EQ(read_json(dir / "out/results.json")["runs"].size(), 4u);
  // A smaller grid leaves the others in; another test length tests all of the grid again.
  const Outcome longer = longshot_run(dir, arguments + "--test-lengths 16,64,128");
  ASSERT_EQ(longer.code, 0) << longer.err;
  EXPECT_THAT(longer.err, HasSubstr("alibi-L16-s1: perplexity"));
  const Results results = read_results(dir / "out/results.json");
  ASSERT_EQ(results.runs.size(), 4u);
  EXPECT_THAT(results.command, testing::AllOf(HasSubstr("--seeds 1,2"), HasSubstr("--test-lengths 16,64,128")));
  EXPECT_EQ(results.runs[0].evals.size(), 6u);
  EXPECT_EQ(results.runs[0].speeds.size(), 4u) << "training, and evaluation at each length";
  EXPECT_EQ(results.runs[1].evals.size(), 4u);
  EXPECT_EQ(results.runs[0].curve.size(), 5u) << "it was not trained again";
}

TEST(Compare, CanBeReportedOnWhileItRuns) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  auto arguments = compare_arguments(dir, "out");
  arguments.insert(arguments.end(), {"--positions", "alibi,t5", "--seeds", "1,2", "--steps", "4000"});
  run_and_signal(arguments, std::chrono::milliseconds(1500), SIGKILL);
  const std::string out = (dir / "out").string();
  const Outcome report = longshot_run(dir, "report " + out + " --no-figures");
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(read_text(dir / "out/report.html"), HasSubstr("Not finished: 0 of 4 models"));
  const Outcome info = longshot_run(dir, "info " + out);
  ASSERT_EQ(info.code, 0) << info.err;
  EXPECT_THAT(info.out,
              testing::AllOf(HasSubstr("0 of 4 trained and tested"), HasSubstr("of 4000"), HasSubstr("not begun")));
}

TEST(Compare, LinksOutOfItAreNotFollowed) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  make_directories(dir / "elsewhere");
  const auto refused = [&](const fs::path& link) {
    make_directories(link.parent_path());
    fs::create_directory_symlink(dir / "elsewhere", link);
    const Outcome o = longshot_run(dir, joined(compare_arguments(dir, "out")) + "--steps 3");
    EXPECT_EQ(o.code, 1);
    EXPECT_THAT(o.err, HasSubstr("a symbolic link is in the way"));
    EXPECT_TRUE(fs::is_empty(dir / "elsewhere"));
    fs::remove(link);
  };
  refused(dir / "out/runs");
  refused(dir / "out/runs/alibi-L16-s1");
}

TEST(Compare, APlanNamesNoFilesElsewhere) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  ASSERT_EQ(longshot_run(dir, joined(compare_arguments(dir, "out")) + "--steps 3").code, 0);
  for (const char* name : {"../../elsewhere", "/etc", "..", ""}) {
    Json plan = read_json(dir / "out/compare.json");
    plan["planned_runs"].push_back(name);
    std::ofstream(dir / "out/compare.json") << plan;
    const Outcome o = longshot_run(dir, "report --no-figures " + (dir / "out").string());
    EXPECT_EQ(o.code, 1) << name;
    EXPECT_THAT(o.err, HasSubstr("is not the name of a model")) << name;
    plan["planned_runs"].erase(plan["planned_runs"].size() - 1);
    std::ofstream(dir / "out/compare.json") << plan;
  }
}

TEST(Compare, SpeedsAreMeasuredInTurn) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  auto arguments = compare_arguments(dir, "out");
  arguments.insert(arguments.end(),
                   {"--positions", "alibi,none", "--steps", "3", "--eval-every", "1", "--eval-lengths", "64"});
  ASSERT_EQ(longshot_run(dir, joined(arguments)).code, 0);
  const Results results = read_results(dir / "out/results.json");
  for (const RunRecord& run : results.runs) {
    ASSERT_EQ(run.speeds.size(), 3u) << "training, and evaluation at 16 and 64";
    EXPECT_EQ(run.speeds[0].work, SpeedWork::kTraining);
    EXPECT_EQ(run.speeds[2].length, 64);
    for (const SpeedRecord& s : run.speeds) EXPECT_TRUE(s.rounds == 3 && s.low > 0 && s.other_load);
    ASSERT_EQ(run.curve.size(), 3u);
    for (const MetricsRecord& m : run.curve) {
      ASSERT_EQ(m.valid_losses.size(), 1u);
      EXPECT_EQ(m.valid_losses[0].length, 64);
      EXPECT_NE(m.valid_losses[0].loss, *m.valid_loss);
    }
  }
  EXPECT_THAT(read_text(dir / "out/report.html"), HasSubstr("Perplexity at 64 while training"));
}

TEST(Compare, OtherOptionsNeedAnotherDirectory) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string arguments = joined(compare_arguments(dir, "out"));
  ASSERT_EQ(longshot_run(dir, arguments).code, 0);
  const Outcome o = longshot_run(dir, arguments + "--steps 41");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("begun with --steps 40, not 41"));
  EXPECT_EQ(longshot_run(dir, arguments + "--modes sideways").code, 2);
}

TEST(Compare, OneComparisonAtATime) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  make_directories(dir / "out");
  const DirectoryLock lock = DirectoryLock::inside(dir / "out");
  const Outcome o = longshot_run(dir, joined(compare_arguments(dir, "out")));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr(fmt::format("another process (pid {})", ::getpid())));
  EXPECT_FALSE(fs::exists(dir / "out/compare.json"));
}

TEST(Compare, OptionsItCannotUseAreRefused) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string arguments = joined(compare_arguments(dir, "out"));
  for (const char* option : {"--position rotary", "--seed 7"}) {
    const Outcome o = longshot_run(dir, arguments + option);
    EXPECT_EQ(o.code, 2) << option;
    EXPECT_THAT(o.err, HasSubstr("Did you mean --")) << option;
  }
  EXPECT_FALSE(fs::exists(dir / "out"));
}

TEST(Compare, ValidatesWhileTraining) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  ASSERT_EQ(longshot_run(dir, joined(compare_arguments(dir, "out")) + "--eval-every 20").code, 0);
  const Json results = read_json(dir / "out" / "results.json");
  int validated = 0;
  for (const Json& point : results["runs"][0]["curve"]) validated += point["valid_loss"].is_number();
  EXPECT_EQ(validated, 2);
}

TEST(Compare, OtherTextNeedsAnotherDirectory) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  auto arguments = compare_arguments(dir, "out");
  arguments.insert(arguments.end(), {"--positions", "alibi,none"});
  const pid_t child = start(arguments);
  ASSERT_TRUE(wait_until([&] { return fs::exists(dir / "out" / "compare.json"); }));
  ::kill(child, SIGKILL);
  end_of(child);
  fs::remove_all(dir / "data");
  write_token_set(dir / "data", small_text(3000) + "x");
  const Outcome o = longshot_run(dir, joined(arguments));
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("other text"));
}

// Nothing is trained, nothing is written, and the corrected command is not refused.
TEST(Compare, MistakesAreFoundBeforeTraining) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string arguments = joined(compare_arguments(dir, "out"));
  for (const char* mistake : {"--test-lengths 16,5000", "--split test", "--positions alibi --alibi-slopes 1,2",
                              "--positions alibi,rotary --rotary-fraction 7"}) {
    const Outcome o = longshot_run(dir, arguments + mistake);
    EXPECT_NE(o.code, 0) << mistake;
    EXPECT_THAT(o.err, testing::Not(HasSubstr("training at"))) << mistake;
    EXPECT_FALSE(fs::exists(dir / "out" / "compare.json")) << mistake;
  }
}

// gnuplot of a user who presses Ctrl-C: the signal reaches it and the program.
TEST(Compare, StoppedWhileItDrawsItSaysSoAndGoesOn) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  make_directories(dir / "bin");
  write_atomically(dir / "bin/gnuplot", "#!/bin/sh\nkill -INT $PPID\nsleep 0.2\nexit 130\n");
  fs::permissions(dir / "bin/gnuplot", fs::perms::owner_all);
  const std::string arguments = joined(compare_arguments(dir, "out"));
  const Outcome o = shell(dir, fmt::format("PATH={}:$PATH {} {}", (dir / "bin").string(), LONGSHOT_PROGRAM, arguments));
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_THAT(o.err,
              testing::AllOf(HasSubstr("stopped; the same command goes on"), testing::Not(HasSubstr("gnuplot"))));
  EXPECT_FALSE(fs::exists(dir / "out/report.html"));
  const Outcome again = longshot_run(dir, arguments);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(fs::exists(dir / "out/report.html"));
  for (const auto& entry : fs::directory_iterator(dir / "out/figures")) {
    if (entry.path().extension() != ".gp") continue;
    EXPECT_TRUE(fs::exists(fs::path(entry.path()).replace_extension(".svg"))) << entry.path();
  }
}

TEST(Compare, ADamagedCheckpointIsToldWithAdviceThatHelps) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string arguments = joined(compare_arguments(dir, "out"));
  ASSERT_EQ(longshot_run(dir, arguments).code, 0);
  const Json whole = results_of(dir, "out");
  const RunDir run(dir / "out/runs/alibi-L16-s1");
  fs::remove(run.record());  // as if it had been killed before the test
  write_atomically(run.checkpoint(40) / kModelFile, "");
  const Outcome o = longshot_run(dir, arguments);
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, testing::AllOf(HasSubstr("Move " + run.checkpoint(40).string() + " away"),
                                    HasSubstr("from step 35"), testing::Not(HasSubstr("--resume-step"))));
  fs::rename(run.checkpoint(40), dir / "damaged");
  EXPECT_EQ(longshot_run(dir, arguments).code, 0);
  EXPECT_EQ(results_of(dir, "out"), whole);
}

TEST(Compare, ChangedTokensAreToldBeforeTraining) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  std::string bytes = read_text(dir / "data/valid.tokens");
  bytes[72] ^= 1;  // the first id: another byte of the vocabulary
  write_atomically(dir / "data/valid.tokens", bytes);
  const Outcome o = longshot_run(dir, joined(compare_arguments(dir, "out")));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err,
              testing::AllOf(HasSubstr("valid.tokens"), HasSubstr("damaged"), testing::Not(HasSubstr("training at"))));
}

TEST(Compare, VariantsOfARecipe) {
  ScratchDir dir;
  write_token_set(dir / "data", 3000);
  write_atomically(dir / "recipe.toml",
                   "positions = []\nseeds = [1, 2]\n[variant.low]\nlr = 1e-4\n[variant.high]\nlr = 1e-2\nseed = 5\n");
  auto arguments = compare_arguments(dir, "out");
  arguments.erase(arguments.begin() + 5, arguments.begin() + 7);  // --positions alibi
  const Outcome o = longshot_run(dir, joined(arguments) + "--config " + (dir / "recipe.toml").string());
  ASSERT_EQ(o.code, 0) << o.err;
  const Results results = read_results(dir / "out" / "results.json");
  ASSERT_EQ(results.runs.size(), 3u);
  EXPECT_EQ(results.runs[0].name, "low-s1");
  EXPECT_EQ(results.runs[1].variant, "low");
  EXPECT_EQ(results.runs[2].name, "high");
  EXPECT_EQ(results.runs[2].seed, 5);
  EXPECT_THAT(o.out, testing::AllOf(HasSubstr("(low)"), HasSubstr("(high)"))) << "two learning rates are not two seeds";
}

}  // namespace
}  // namespace longshot
