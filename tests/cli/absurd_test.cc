// Numbers no one means and things that are no files: each is refused with a message that names it.
#include <gmock/gmock.h>

#include "cli/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

class Absurd : public testing::Test {
 protected:
  void SetUp() override { write_token_set(dir_ / "data", 3000); }
  std::string data() const { return (dir_ / "data").string(); }
  std::string run() const { return (dir_ / "run").string(); }
  std::string train(const std::string& more) const {
    return fmt::format("train --data {} --out {} --layers 1 --dim 16 --heads 2 --length 16 --steps 2 --threads 1 {}",
                       data(), run(), more);
  }
  void refused(const std::string& arguments, const std::string& message, int code = 2) const {
    const Outcome o = shell(dir_, fmt::format("timeout 60 {} {}", LONGSHOT_PROGRAM, arguments));
    EXPECT_EQ(o.code, code) << arguments << "\n" << o.err;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
  }
  ScratchDir dir_;
};

TEST_F(Absurd, ModelsAndTraining) {
  const char* kLarge = "1000000000000000000";
  for (const char* option :
       {"layers", "dim", "heads", "ffn", "length", "steps", "batch-tokens", "micro-batch-tokens"}) {
    refused(train(fmt::format("--{} {}", option, kLarge)), fmt::format("--{} must be", option));
    refused(train(fmt::format("--{} -1", option)), fmt::format("--{} ", option));
  }
  refused(train("--layers 16384 --dim 1048576 --heads 1048576"), "weights: too many");
  for (const char* option : {"lr", "eps", "weight-decay", "min-lr", "warmup-init-lr", "paper-min-lr", "dropout",
                             "attention-epsilon", "beta1", "momentum", "rotary-base"}) {
    for (const char* value : {"nan", "inf", "-1"}) {
      refused(train(fmt::format("--position rotary --{} {}", option, value)), fmt::format("--{}", option));
    }
  }
  for (const char* option : {"clip", "save-minutes", "max-seconds"}) {
    refused(train(fmt::format("--{} nan", option)), fmt::format("--{} must", option));
    refused(train(fmt::format("--{} -1", option)), fmt::format("--{} must", option));
  }
  for (const char* slopes : {"nan,1", "inf,1", "1e30,1", "-1e30,1"}) {
    refused(train(fmt::format("--alibi-slopes {}", slopes)), "--alibi-slopes");
  }
  for (const auto& [option, value] :
       {std::pair("keep", 0), std::pair("log-every", 0), std::pair("eval-every", -1), std::pair("eval-tokens", -1),
        std::pair("resume-step", -1), std::pair("warmup", -1)}) {
    refused(train(fmt::format("--{} {}", option, value)), fmt::format("--{}", option));
  }
  EXPECT_FALSE(fs::exists(run()));
}

TEST_F(Absurd, EvaluationAndComparison) {
  ASSERT_EQ(longshot_run(dir_, train("")).code, 0);
  const std::string eval = fmt::format("eval {} --data {} --threads 1 ", run(), data());
  for (const char* value : {"1000000000000000000", "-1", "0"}) {
    refused(eval + "--score all --lengths " + value, fmt::format("a window of length {}", value));
    refused(eval + "--batch-tokens " + value, "--batch-tokens");
  }
  refused(eval + "--mode sliding --stride -1", "--stride");
  refused(eval + "--max-tokens -1", "tokens");
  for (const char* value : {"nan", "inf", "1e6", "-1", "1"}) refused(eval + "--attention-epsilon " + value, "[0, 1)");
  const std::string compare = fmt::format("compare --data {} --out {} --layers 1 --dim 16 --heads 2 --threads 1 ",
                                          data(), (dir_ / "compare").string());
  for (const char* value : {"1000000000000000000", "-1", "0"}) {
    refused(compare + "--train-lengths " + value, fmt::format("--train-lengths: {} is not", value));
    refused(compare + "--length " + value, "--length must be");
  }
  for (const char* value : {"nan", "inf", "1e300", "-1"}) refused(compare + "--equal-time " + value, "--equal-time");
  EXPECT_FALSE(fs::exists(dir_ / "compare"));
}

TEST_F(Absurd, DevicesInPlaceOfFiles) {
  ASSERT_EQ(longshot_run(dir_, train("")).code, 0);
  const std::string out = (dir_ / "set").string();
  for (const char* input : {"/dev/zero", "- < /dev/zero", "/dev/null"}) {
    refused(fmt::format("prepare --train {} --tokenizer byte --out {}", input, out), "is a device", 1);
  }
  refused(fmt::format("prepare --train {} --tokenizer /dev/zero --out {}", (dir_ / "stdout").string(), out),
          "/dev/zero", 1);
  refused("train --config /dev/zero", "a device", 1);
  refused("info /dev/zero", "/dev/zero", 1);
  refused("report /dev/zero", "/dev/zero", 1);
  refused(fmt::format("import /dev/zero --out {}", out), "a device", 1);
  const std::string eval = fmt::format("eval {} --data {} --lengths 16 --threads 1 ", run(), data());
  fs::create_symlink("/dev/null", dir_ / "nothing");
  for (const std::string& place : {std::string("/dev/null"), (dir_ / "nothing").string()}) {
    refused(eval + "--json " + place, "cannot be written: it is a device", 1);
  }
  fs::remove(dir_ / "data/valid.tokens");
  fs::create_symlink("/dev/zero", dir_ / "data/valid.tokens");
  refused(eval, "a device", 1);
}

TEST_F(Absurd, ALinkToItself) {
  fs::create_symlink("tokenizer.model", dir_ / "tokenizer.model");
  const std::string path = (dir_ / "tokenizer.model").string();
  refused("info " + path, "longshot: " + path + ": Too many levels of symbolic links", 1);
}

TEST_F(Absurd, KeysOfARecipeNestedTooDeep) {
  std::string deep;
  for (int i = 0; i < 200'000; ++i) deep += "a.";
  for (const std::string& text : {deep + "a = 1\n", "[" + deep + "a]\n", "x = { " + deep + "a = 1 }\n"}) {
    write_atomically(dir_ / "deep.toml", text);
    refused("compare --config " + (dir_ / "deep.toml").string(), "dots");
    make_directories(run());
    write_atomically(RunDir(run()).config(), text);
    refused("report " + run(), "dots");
  }
}

TEST_F(Absurd, ChangedTokensAreNotScored) {
  ASSERT_EQ(longshot_run(dir_, train("")).code, 0);
  std::string bytes = read_text(dir_ / "data/valid.tokens");
  bytes[72] ^= 1;  // the first id: another byte of the vocabulary
  write_atomically(dir_ / "data/valid.tokens", bytes);
  refused(fmt::format("eval {} --data {} --lengths 16", run(), data()), "The file is damaged", 1);
  EXPECT_FALSE(fs::exists(RunDir(run()).evals()));
}

}  // namespace
}  // namespace longshot
