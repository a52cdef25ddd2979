// `longshot import` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "formats/torch_builder.h"
#include "train/checkpoint.h"

namespace longshot {
namespace {

using testing::HasSubstr;

const fs::path kReference = fs::path(LONGSHOT_SOURCE_DIR) / "../shared/reference";

struct Outcome {
  int code;
  std::string output;  // stdout and stderr
};

Outcome longshot_run(const ScratchDir& dir, const std::string& arguments) {
  const fs::path log = dir / "log";
  const int status = std::system(fmt::format("{} {} > {} 2>&1", LONGSHOT_PROGRAM, arguments, log.string()).c_str());
  return {WEXITSTATUS(status), read_text(log)};
}

TEST(Import, MakesARunThatLoads) {
  if (!fs::exists(kReference)) GTEST_SKIP() << kReference << " is absent";
  const ScratchDir dir;
  const std::string source = (kReference / "checkpoints/sin_L64_h8_d128.pt").string(), out = (dir / "run").string();
  const std::string command = fmt::format("import {} --dict {} --position sinusoidal --out {}", source,
                                          (kReference / "data-bin/dict.txt").string(), out);
  const Outcome made = longshot_run(dir, command);
  ASSERT_EQ(made.code, 0) << made.output;
  EXPECT_THAT(made.output, HasSubstr("1414144 parameters"));
  const LoadedModel loaded = load_model(out);
  EXPECT_EQ(loaded.info.step, 600);
  EXPECT_EQ(loaded.info.model.position, "sinusoidal");
  EXPECT_EQ(loaded.info.model.adaptive_cutoffs, (std::vector<int64_t>{2000, 8000}));
  EXPECT_EQ(loaded.info.model.adaptive_dropout, 0.1);
  ASSERT_TRUE(loaded.tokenizer);
  EXPECT_EQ(loaded.tokenizer->vocab_size(), 26912);
  EXPECT_TRUE(fs::exists(dir / "run/config.toml"));

  const Outcome again = longshot_run(dir, command);
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.output, HasSubstr("holds a run already"));
}

TEST(Import, RefusesAWrongDictionary) {
  if (!fs::exists(kReference)) GTEST_SKIP() << kReference << " is absent";
  const ScratchDir dir;
  dir.write("dict.txt", "the 3\nof 2\n");
  const Outcome outcome = longshot_run(
      dir, fmt::format("import {} --dict {} --out {}", (kReference / "checkpoints/sin_L64_h8_d128.pt").string(),
                       (dir / "dict.txt").string(), (dir / "run").string()));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("the model 26912"));
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST(Import, RefusesHostileAndForeignFiles) {
  const ScratchDir dir;
  const auto refused = [&](const std::string& bytes) {
    const Outcome outcome =
        longshot_run(dir, fmt::format("import {} --out {}", dir.write("x.pt", bytes).string(), (dir / "run").string()));
    EXPECT_EQ(outcome.code, 1);
    EXPECT_FALSE(fs::exists(dir / "run"));
    return outcome.output;
  };
  const std::string witness = (dir / "executed").string();
  const std::string attack =
      build::call(build::global("os", "system"), {build::text(fmt::format("touch {}", witness))});
  EXPECT_THAT(refused(build::torch_zip(attack)), HasSubstr("os.system"));
  EXPECT_FALSE(fs::exists(witness));
  EXPECT_THAT(refused(build::torch_zip(build::dict({}))), HasSubstr("not a checkpoint of fairseq's"));
  EXPECT_THAT(refused("hello"), HasSubstr("neither a zip nor a stream"));
  EXPECT_EQ(longshot_run(dir, fmt::format("import {}", (dir / "x.pt").string())).code, 2);
  EXPECT_EQ(
      longshot_run(dir, fmt::format("import {} --out {}", (dir / "absent.pt").string(), (dir / "run").string())).code,
      1);
}

}  // namespace
}  // namespace longshot
