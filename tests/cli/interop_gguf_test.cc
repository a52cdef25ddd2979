// GGUF files through the commands: looked at, in, and out again.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/support.h"
#include "formats/gguf_builder.h"
#include "references.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string fixture(const std::string& name) { return (kFixtures / "gguf/models" / (name + ".gguf")).string(); }

TEST(InteropGguf, InfoShowsFamilyKeysAndTensors) {
  const ScratchDir dir;
  const Outcome text = longshot_run(dir, "info " + fixture("llama-q4_k"));
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("family        Llama"), HasSubstr("1 layers, dim 256, 4 heads of 64"),
                              HasSubstr("tokenizer     bpe, 260 entries"), HasSubstr("llama.rope.freq_base = 500000"),
                              HasSubstr("tokenizer.ggml.tokens = 260 of text"),
                              HasSubstr("Q6_K  [260, 256]       token_embd.weight"), Not(HasSubstr("not supported"))));
  const Outcome json = longshot_run(dir, "info --json " + fixture("mpt-f16"));
  const auto all = nlohmann::json::parse(json.out);
  EXPECT_EQ(all["family"], "MPT");
  EXPECT_EQ(all["keys"]["mpt.attention.max_alibi_bias"], 16);
  EXPECT_EQ(all["model"]["position"], "alibi");
  EXPECT_TRUE(all["refused"].empty());
  EXPECT_EQ(all["tensors"][0]["type"], "F16");
}

TEST(InteropGguf, InfoShowsWhatNoImportTakes) {
  const ScratchDir dir;
  GgufBuilder file(fixture("bloom"));
  file.set("general.architecture", "jais\x1b[31m");
  file.set("tokenizer.ggml.pre", "default");
  const std::string path = dir.write("x.gguf", file.bytes()).string();
  const Outcome text = longshot_run(dir, "info " + path);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("not supported"), HasSubstr("\"jais\\x1b[31m\""), HasSubstr("'default'"),
                    HasSubstr("bloom.block_count = 2"), HasSubstr("token_embd_norm.bias"), Not(HasSubstr("\x1b"))));
  const Outcome import = longshot_run(dir, "import " + path + " --out " + (dir / "run").string());
  EXPECT_EQ(import.code, 1);
  EXPECT_THAT(import.err, HasSubstr("which this program does not read"));
}

TEST(InteropGguf, KeysThatArePrintedAlikeAreOneInJson) {
  const ScratchDir dir;
  GgufBuilder file(fixture("mpt-f16"));
  file.set("x.\x1b", uint32_t{1});
  file.set("x.\\x1b", uint32_t{2});
  const Outcome o = longshot_run(dir, "info --json " + dir.write("x.gguf", file.bytes()).string());
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(parse_json(o.out, "info")["keys"]["x.\\x1b"], 1);
}

TEST(InteropGguf, InAndOutAgain) {
  const ScratchDir dir;
  const std::string run = (dir / "run").string(), out = (dir / "x.gguf").string();
  Outcome o = longshot_run(dir, "import " + fixture("bloom") + " --out " + run);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("BLOOM, 31440 parameters"), HasSubstr("bpe tokenizer, 700 entries")));
  EXPECT_EQ(longshot_run(dir, "generate " + run + " --prompt the --max-tokens 4 --seed 1").code, 0);
  o = longshot_run(dir, "export " + run + " --format gguf --out " + out);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("31440 parameters as bloom"));
  EXPECT_EQ(longshot_run(dir, "export " + run + " --format gguf --out " + out).code, 2);
  EXPECT_EQ(longshot_run(dir, "import " + out + " --dict x --out " + (dir / "other").string()).code, 2);
  o = longshot_run(dir, "export " + run + " --type q8_0 --out " + (dir / "hf").string());
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("--type q8_0 goes with --format gguf"));
  o = longshot_run(dir, "export " + run + " --format gguf --family llama --out " + (dir / "y.gguf").string());
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("--position is alibi, llama needs rotary"));
}

TEST(InteropGguf, CompatSaysWhatLlamaCppHolds) {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  ASSERT_EQ(longshot_run(dir, "import " + fixture("mpt-f16") + " --out " + run).code, 0);
  std::map<std::string, std::string> holds;
  for (const auto& row : nlohmann::json::parse(longshot_run(dir, "info --compat --json " + run).out))
    holds[row["program"].get<std::string>() + " " + row["form"].get<std::string>()] = row["holds_this_model"];
  EXPECT_EQ(holds["llama.cpp mpt"], "yes");
  EXPECT_THAT(holds["llama.cpp bloom"], AllOf(HasSubstr("--embedding-norm"), HasSubstr("--alibi-slopes")));
  EXPECT_THAT(holds["llama.cpp falcon"], HasSubstr("no"));
  EXPECT_THAT(holds["transformers mpt"], AllOf(HasSubstr("--activation"), HasSubstr("--alibi-slopes")));
}

}  // namespace
}  // namespace longshot
