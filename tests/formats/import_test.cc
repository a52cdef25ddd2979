// `longshot import` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/lock.h"
#include "cli/support.h"
#include "formats/torch_builder.h"
#include "references.h"
#include "run/loaded_model.h"

namespace longshot {
namespace {

using testing::HasSubstr;

struct Source {
  fs::path folder;
  std::string checkpoint, position;
  int64_t parameters, step, vocab;
  std::vector<int64_t> cutoffs;
  std::string file() const { return (folder / "checkpoints" / checkpoint).string(); }
  std::string dict() const { return (folder / "data-bin/dict.txt").string(); }
};

void PrintTo(const Source& s, std::ostream* out) { *out << s.checkpoint; }

const Source kSinusoidal{kFixtures, "sinusoidal.pt", "sinusoidal", 14568, 150, 328, {60, 180}};

class Import : public testing::TestWithParam<Source> {};

TEST_P(Import, MakesARunThatLoads) {
  const Source& source = GetParam();
  const ScratchDir dir;
  const std::string out = (dir / "run").string();
  const std::string command =
      fmt::format("import {} --dict {} --position {} --out {}", source.file(), source.dict(), source.position, out);
  const Outcome made = longshot_run(dir, command);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr(fmt::format("{} parameters", source.parameters)));
  const LoadedModel loaded = load_model(out);
  EXPECT_EQ(loaded.info.step, source.step);
  EXPECT_EQ(loaded.info.model.position, source.position);
  EXPECT_EQ(loaded.info.model.adaptive_cutoffs, source.cutoffs);
  ASSERT_TRUE(loaded.tokenizer);
  EXPECT_EQ(loaded.tokenizer->vocab_size(), source.vocab);
  EXPECT_TRUE(fs::exists(dir / "run/config.toml"));

  const Outcome again = longshot_run(dir, command);
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("holds a run already"));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Import,
                         testing::Values(kSinusoidal,
                                         Source{kFixtures, "alibi.pt", "alibi", 14568, 150, 328, {60, 180}},
                                         Source{kFixtures, "alibi-old.pt", "alibi", 14568, 150, 328, {60, 180}}));
INSTANTIATE_TEST_SUITE_P(
    Large, Import,
    testing::ValuesIn(if_large<Source>({Source{
        kLargeReference, "sin_L64_h8_d128.pt", "sinusoidal", 1414144, 600, 26912, {2000, 8000}}})));

TEST(ImportWithoutADictionary, IsScoredOnItsTokenSet) {
  const ScratchDir dir;
  const std::string out = (dir / "run").string();
  ASSERT_EQ(longshot_run(dir, fmt::format("import {} --position sinusoidal --out {}", kSinusoidal.file(), out)).code,
            0);
  const Outcome outcome = longshot_run(
      dir, fmt::format("eval {} --data {} --lengths 32 --max-tokens 64", out, (kFixtures / "data-bin").string()));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("perplexity"));
}

TEST(ImportErrors, RefusesAWrongDictionary) {
  const ScratchDir dir;
  dir.write("dict.txt", "the 3\nof 2\n");
  const Outcome outcome = longshot_run(dir, fmt::format("import {} --dict {} --out {}", kSinusoidal.file(),
                                                        (dir / "dict.txt").string(), (dir / "run").string()));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("the model 328"));
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST(ImportErrors, ADirectoryThatAnotherProcessWritesIsLeftAlone) {
  const ScratchDir dir;
  make_directories(dir / "run");
  const DirectoryLock lock = DirectoryLock::inside(dir / "run");
  const Outcome outcome =
      longshot_run(dir, fmt::format("import {} --out {}", kSinusoidal.file(), (dir / "run").string()));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(fmt::format("another process (pid {})", ::getpid())));
  EXPECT_FALSE(fs::exists(dir / "run/checkpoints"));
}

TEST(ImportErrors, RefusesHostileAndForeignFiles) {
  const ScratchDir dir;
  const auto refused = [&](const std::string& bytes) {
    const Outcome outcome =
        longshot_run(dir, fmt::format("import {} --out {}", dir.write("x.pt", bytes).string(), (dir / "run").string()));
    EXPECT_EQ(outcome.code, 1);
    EXPECT_FALSE(fs::exists(dir / "run"));
    return outcome.err;
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
