// Other programs' models through the commands: in, looked at, run, and out again.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"
#include "references.h"

namespace longshot {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string fixture(const std::string& name) { return (kFixtures / "hf" / name).string(); }

TEST(Interop, InfoOfADirectory) {
  const ScratchDir dir;
  const Outcome text = longshot_run(dir, "info " + fixture("bloom"));
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("2 layers, dim 24, 6 heads of 4"));
  EXPECT_THAT(text.out, HasSubstr("word_embeddings.weight"));
  const Outcome json = longshot_run(dir, "info --json " + fixture("llama"));
  EXPECT_EQ(nlohmann::json::parse(json.out)["family"], "Llama");
}

TEST(Interop, ImportedModelsTakePart) {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  Outcome o = longshot_run(dir, "import " + fixture("bloom-bf16") + " --no-tokenizer --out " + run);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("position alibi"));
  o = longshot_run(dir, "info " + run);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(longshot_run(dir, "import " + fixture("bloom") + " --no-tokenizer --out " + run).code, 2);
  const std::string out = (dir / "hf").string();
  o = longshot_run(dir, "export " + run + " --format hf --out " + out);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(read_text(dir / "hf/README.md"), HasSubstr("bfloat16"));
  EXPECT_EQ(longshot_run(dir, "export " + run + " --out " + out).code, 2);
  EXPECT_EQ(longshot_run(dir, "export " + run).code, 2);
}

TEST(Interop, CompatSaysWhoHoldsTheModel) {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  ASSERT_EQ(longshot_run(dir, "import " + fixture("mpt") + " --no-tokenizer --out " + run).code, 0);
  const Outcome json = longshot_run(dir, "info --compat --json " + run);
  ASSERT_EQ(json.code, 0) << json.err;
  bool seen = false;
  for (const auto& row : nlohmann::json::parse(json.out)) {
    const std::string holds = row["holds_this_model"];
    if (row["program"] != "transformers") continue;
    if (row["form"] == "bloom") {
      EXPECT_THAT(holds, HasSubstr("--embedding-norm"));
    } else if (row["form"] == "mpt") {
      EXPECT_EQ(holds, "yes");
      seen = true;
    }
  }
  EXPECT_TRUE(seen);
  EXPECT_THAT(longshot_run(dir, "info --compat " + run).out, Not(HasSubstr("gpt2")));
}

}  // namespace
}  // namespace longshot
