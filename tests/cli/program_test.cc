// The program as a user meets it: right and wrong command lines, damaged files, kills, a full disk.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "cli/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

const char* kSmall = "--layers 2 --dim 32 --heads 4 --length 24 --batch-tokens 240 --warmup 2 --threads 1";

TEST(Program, HelpEverywhere) {
  const ScratchDir dir;
  const Outcome all = longshot_run(dir, "--help");
  EXPECT_EQ(all.code, 0);
  EXPECT_EQ(longshot_run(dir, "").code, 2);
  EXPECT_THAT(longshot_run(dir, "--version").out, HasSubstr("longshot "));
  for (const char* command :
       {"prepare", "train", "eval", "compare", "report", "import", "export", "info", "bench", "positions"}) {
    const Outcome help = longshot_run(dir, std::string(command) + " --help");
    EXPECT_EQ(help.code, 0) << command;
    const std::string line = fmt::format("\n  {} ", command);
    EXPECT_THAT(all.out, HasSubstr(line));
    EXPECT_EQ(all.out.find(line), all.out.rfind(line)) << command << " is listed twice";
    EXPECT_THAT(help.out, HasSubstr("usage: longshot " + std::string(command)));
    EXPECT_EQ(longshot_run(dir, std::string(command) + " --print-config").code, 0) << command;
  }
}

TEST(Program, MistypedWordsNameTheNearest) {
  const ScratchDir dir;
  Outcome o = longshot_run(dir, "trian");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("'train'"));
  o = longshot_run(dir, "train --lenght 64");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("--length"));
  o = longshot_run(dir, "train --position alibbi");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("'alibi'"));
  o = longshot_run(dir, "train --layers many");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("whole number"));
  write_atomically(dir / "c.toml", "layers = 3\nheds = 2\n");
  o = longshot_run(dir, "train --config " + (dir / "c.toml").string());
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, testing::AllOf(HasSubstr("c.toml:2"), HasSubstr("'heads'")));
}

TEST(Program, FlagsWinOverTheFile) {
  const ScratchDir dir;
  write_atomically(dir / "c.toml", "layers = 3\nlr = 0.5\n");
  const Outcome o = longshot_run(dir, "train --print-config --layers 5 --config " + (dir / "c.toml").string());
  EXPECT_THAT(o.out, testing::AllOf(HasSubstr("layers = 5 "), HasSubstr("lr = 0.5 ")));
}

TEST(Program, TrainEvalInfo) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string run = (dir / "run").string(), data = (dir / "data").string();
  const Outcome trained =
      longshot_run(dir, fmt::format("train --data {} --out {} --steps 12 --eval-every 6 {}", data, run, kSmall));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err,
              testing::AllOf(HasSubstr("tokens/s"), HasSubstr("% of f32 peak"), HasSubstr("validation loss")));
  const Outcome again = longshot_run(dir, fmt::format("train --data {} --out {} --steps 12 {}", data, run, kSmall));
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("--resume"));

  const std::string json = (dir / "eval.json").string();
  const Outcome scored =
      longshot_run(dir, fmt::format("eval {} --data {} --lengths 24,96,300 --json {}", run, data, json));
  ASSERT_EQ(scored.code, 0) << scored.err;
  EXPECT_THAT(scored.out, HasSubstr("beyond training length"));
  const Json results = read_json(json);
  EXPECT_EQ(results["position"], "alibi");
  EXPECT_EQ(results["train_length"], 24);
  ASSERT_EQ(results["results"].size(), 3u);
  for (const Json& r : results["results"]) {
    EXPECT_EQ(r["tokens"], 600);  // the largest multiple of 300 in the 750 tokens of the split, at every length
    EXPECT_NEAR(r["perplexity"].get<double>(), std::exp(r["loss"].get<double>()), 1e-9 * r["perplexity"].get<double>());
    EXPECT_TRUE(r["bits_per_byte"].is_number());
  }
  EXPECT_EQ(results["per_position"].back()["to"], 300);
  ASSERT_EQ(results["decomposition"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Json& d = results["decomposition"][i];
    EXPECT_EQ(d["length"], results["results"][i + 1]["length"]);
    const double total = results["results"][i + 1]["loss"].get<double>() - results["results"][0]["loss"].get<double>();
    EXPECT_NEAR(d["total"].get<double>(), total, 1e-6);
    EXPECT_NEAR(d["curse_relief"].get<double>() + d["beyond"].get<double>(), total, 1e-6);
  }
  EXPECT_THAT(scored.out, HasSubstr("curse relief"));
  EXPECT_THAT(longshot_run(dir, "info " + run).out,
              testing::AllOf(HasSubstr("alibi"), HasSubstr("train length  24"), HasSubstr("slopes")));
  EXPECT_EQ(longshot_run(dir, "info --json " + run).code, 0);
  EXPECT_THAT(longshot_run(dir, "info " + data).out,
              testing::AllOf(HasSubstr("tokenizer: byte"), HasSubstr("train: 3000 tokens"), HasSubstr("frequent: ' '"),
                             HasSubstr("begins: Verse 0: the river")));
}

TEST(Program, BadInputGetsAMessageAndACode) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string data = (dir / "data").string(), run = (dir / "run").string();
  const auto expect = [&](const std::string& arguments, int code, const std::string& message) {
    const Outcome o = longshot_run(dir, arguments);
    EXPECT_EQ(o.code, code) << arguments << "\n" << o.err;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
  };
  const std::string train = fmt::format("train --data {} --out {} {} ", data, run, kSmall);
  expect("train", 2, "--data");
  expect("train --data /nonexistent --out " + run, 1, "/nonexistent");
  expect(train + "--heads 5", 2, "--heads (5) must divide --dim (32)");
  expect(train + "--length 0", 2, "--length must be positive");
  expect(train + "--dim 1040 --heads 2", 2, "the head dimension can be at most 512");
  expect(train + "--batch-tokens 10", 2, "--batch-tokens (10)");
  expect(train + "--dropout 1.5", 2, "--dropout");
  expect(train + "--lr nan", 2, "--lr");
  expect("eval /nonexistent --data " + data, 1, "/nonexistent");
  expect("bench --what ''", 2, "names no part to measure");
  expect("info /nonexistent", 1, "/nonexistent");
  std::ofstream(dir / "file") << "x";
  expect(fmt::format("train --data {} --out {}/run {} --steps 3", data, (dir / "file").string(), kSmall), 1,
         "cannot create");

  ASSERT_EQ(longshot_run(dir, train + "--steps 3").code, 0);
  std::ofstream(dir / "words.txt") << small_text(3000);
  ASSERT_EQ(longshot_run(dir, fmt::format("prepare {} --tokenizer word --split 0.5,0.5,0 --out {}",
                                          (dir / "words.txt").string(), (dir / "other").string()))
                .code,
            0);
  expect(fmt::format("eval {} --data {}", run, (dir / "other").string()), 1, "tokenizer");
  const std::string tokens = read_text(dir / "data/valid.tokens");
  write_atomically(dir / "data/valid.tokens", tokens.substr(0, tokens.size() / 2));
  expect(fmt::format("eval {} --data {}", run, data), 1, "interrupted");
  write_atomically(dir / "data/valid.tokens", "");
  expect(fmt::format("eval {} --data {}", run, data), 1, "valid.tokens");
}

TEST(Program, AFinishedRunSaysSo) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string run = (dir / "run").string(), data = (dir / "data").string();
  const std::string train =
      fmt::format("train --data {} --out {} --steps 5 --seed 18446744073709551615 {}", data, run, kSmall);
  const Outcome first = longshot_run(dir, train);
  ASSERT_EQ(first.code, 0) << first.err;
  const Outcome again = longshot_run(dir, "train --resume --out " + run);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing left to do"));
  const std::string numbers = first.out.substr(first.out.find("loss"));
  EXPECT_THAT(again.out, HasSubstr(numbers));
  const Outcome other = longshot_run(dir, "train --resume --steps 9 --optimizer nag --out " + run);
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, testing::AllOf(HasSubstr("--optimizer is nag"), HasSubstr("adamw")));
}

TEST(Program, FewStepsNeedNoOtherWarmUp) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const Outcome o =
      longshot_run(dir, fmt::format("train --data {} --out {} --steps 8 --layers 1 --dim 32 --heads 4 --length 24",
                                    (dir / "data").string(), (dir / "run").string()));
  EXPECT_EQ(o.code, 0) << o.err;
}

TEST(Program, TrainsOnFromAnotherRun) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string run = (dir / "run").string(), data = (dir / "data").string(), tuned = (dir / "tuned").string();
  ASSERT_EQ(longshot_run(dir, fmt::format("train --data {} --out {} --steps 5 {}", data, run, kSmall)).code, 0);
  const Outcome o = longshot_run(
      dir, fmt::format("train --data {} --out {} --from {} --length 48 --steps 4 --threads 1", data, tuned, run));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, testing::AllOf(HasSubstr("length 48"), HasSubstr("with the weights of " + run)));
  const CheckpointInfo info = read_checkpoint(RunDir(tuned).checkpoint(4));
  EXPECT_EQ(info.model.dim, 32);
  EXPECT_EQ(info.from->step, 5);
}

TEST(Program, DryRunTellsCostsAndLeavesNothing) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const Outcome o = longshot_run(dir, fmt::format("train --data {} --out {} --dry-run --layers 5 --dim 32 --heads 4",
                                                  (dir / "data").string(), (dir / "run").string()));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, testing::AllOf(HasSubstr("memory in all"), HasSubstr("tokens/s")));
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST(Program, DryRunForecastsRanks) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const auto dry_run = [&](const std::string& options) {
    return longshot_run(dir, fmt::format("train --data {} --dry-run --layers 2 --dim 32 --heads 4 {}",
                                         (dir / "data").string(), options));
  };
  const Outcome o = dry_run("--ranks 1,2,8 --bandwidth 100Mbit --latency 1ms");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, testing::AllOf(HasSubstr("100Mbit each way, 1ms"), HasSubstr("\n     1 "), HasSubstr("100.0%"),
                                    HasSubstr("\n     8 ")));
  const Outcome bad = dry_run("--ranks 2 --bandwidth 100");
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("--bandwidth: '100' is not"));
  EXPECT_EQ(longshot_run(dir, "train --ranks 2 --data x --out y").code, 2);
}

TEST(Program, OutputThatCannotBeWrittenIsAnError) {
  const ScratchDir dir;
  const Outcome o = shell(dir, fmt::format("{} positions > /dev/full", LONGSHOT_PROGRAM));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("No space left"));
}

TEST(Program, AFullDiskLosesNothing) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const std::string run = (dir / "run").string(), data = (dir / "data").string();
  const std::string first = fmt::format("train --data {} --out {} --steps 4 --save-every 2 {}", data, run, kSmall);
  ASSERT_EQ(longshot_run(dir, first + " --max-seconds 0").code, 0);
  const std::string before = read_text(find_checkpoint(dir / "run") / kModelFile);
  // No file may grow beyond 64 kB: the next checkpoint cannot be written.
  const Outcome o =
      shell(dir, fmt::format("ulimit -f 64; {} train --resume --out {} --steps 8", LONGSHOT_PROGRAM, run));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("cannot write"));
  EXPECT_EQ(read_text(find_checkpoint(dir / "run") / kModelFile), before);
  EXPECT_EQ(longshot_run(dir, fmt::format("train --resume --out {} --steps 8", run)).code, 0);
  EXPECT_EQ(checkpoint_steps(RunDir(dir / "run")).back(), 8);
}

std::vector<std::string> train_arguments(const fs::path& data, const fs::path& out) {
  return {"train",     "--data", data.string(),  "--out", out.string(),    "--resume", "--layers",       "2",
          "--dim",     "32",     "--heads",      "4",     "--length",      "24",       "--batch-tokens", "480",
          "--warmup",  "2",      "--threads",    "1",     "--steps",       "120",      "--save-every",   "1",
          "--dropout", "0.1",    "--eval-every", "50",    "--eval-tokens", "100"};
}

TEST(Program, KilledTenTimesAndResumedEndsWithTheSameBits) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  ASSERT_EQ(longshot_run(dir, joined(train_arguments(dir / "data", dir / "whole"))).code, 0);
  int killed = 0;
  for (uint64_t i = 0; i < 10; ++i) {
    const auto delay = std::chrono::milliseconds(80 + random_bits(1, Stream::kTest, i) % 150);
    killed += WIFSIGNALED(run_and_signal(train_arguments(dir / "data", dir / "killed"), delay, SIGKILL));
  }
  EXPECT_GT(killed, 0) << "every run ended before it was killed: the test shows nothing";
  ASSERT_EQ(longshot_run(dir, joined(train_arguments(dir / "data", dir / "killed"))).code, 0);
  const fs::path a = RunDir(dir / "whole").checkpoint(120), b = RunDir(dir / "killed").checkpoint(120);
  EXPECT_TRUE(read_text(a / kModelFile) == read_text(b / kModelFile));
  EXPECT_TRUE(read_text(a / kOptimizerFile) == read_text(b / kOptimizerFile));
}

// The second Ctrl-C ends the process at once. What was trained is saved before validation begins.
TEST(Program, TwoInterruptsDuringValidationLoseNothing) {
  const ScratchDir dir;
  write_token_set(dir / "data", 400'000);
  const RunDir run(dir / "run");
  std::vector<std::string> arguments = train_arguments(dir / "data", run.path());
  arguments.insert(arguments.end(), {"--steps", "20", "--save-every", "0", "--eval-every", "10", "--eval-tokens", "0"});
  const pid_t child = start(arguments);
  const bool saved = wait_until([&] { return fs::exists(run.checkpoint(10)); });
  ::kill(child, SIGINT);
  ::kill(child, SIGTERM);  // two of one kind that nobody has taken yet are one
  const int status = end_of(child);
  ASSERT_TRUE(saved);
  EXPECT_TRUE(WIFSIGNALED(status)) << "it ended before the second: the test shows nothing";
  EXPECT_EQ(read_checkpoint(run.checkpoint(10)).step, 10);
  EXPECT_THAT(read_text(run.metrics()), testing::Not(HasSubstr("valid_loss\":"))) << "validation had ended";
  arguments.insert(arguments.end(), {"--eval-tokens", "100"});
  ASSERT_EQ(longshot_run(dir, joined(arguments)).code, 0);
  int validated = 0;
  for (const MetricsRecord& record : read_metrics(run)) validated += record.valid_loss.has_value();
  EXPECT_EQ(validated, 2);
}

TEST(Program, InterruptSavesAndEnds) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  auto arguments = train_arguments(dir / "data", dir / "run");
  arguments.insert(arguments.end(), {"--steps", "1000000", "--save-every", "0", "--eval-every", "0"});
  for (const int signal : {SIGINT, SIGTERM}) {
    const int status = run_and_signal(arguments, std::chrono::milliseconds(1500), signal);
    ASSERT_TRUE(WIFEXITED(status)) << "ended by a signal instead of saving";
    EXPECT_EQ(WEXITSTATUS(status), 1);
    EXPECT_FALSE(checkpoint_steps(RunDir(dir / "run")).empty());
  }
}

}  // namespace
}  // namespace longshot
