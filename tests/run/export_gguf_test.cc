// Models handed to llama.cpp: what is written is read back bit for bit, what cannot be said is refused, and nothing of others is
// replaced.
#include "run/export_gguf.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "context.h"
#include "data/hf_tokenizer.h"
#include "data/tokenizers.h"
#include "formats/gguf_families.h"
#include "formats/scratch.h"
#include "references.h"
#include "run/checkpoint.h"
#include "run/gguf_tokenizer.h"
#include "run/import_model.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string weights_of(const fs::path& run) { return read_text(find_checkpoint(run) / kModelFile); }
// With the numbers that 0 stands for.
Json model_of(const fs::path& run) {
  ModelConfig model = read_checkpoint(find_checkpoint(run)).model;
  model.ffn = model.ffn_dim(), model.kv_heads = model.key_heads();
  return model.to_json();
}

// A checkpoint of random weights.
void make_run(const fs::path& path, const ModelConfig& config, const Tokenizer* tokenizer = nullptr) {
  Transformer model(config, false);
  model.initialize(test_context(), 7);
  save_checkpoint(path, CheckpointContent{.model = model, .tokenizer = tokenizer});
}

using Options = std::map<std::string, std::string>;

// A model that llama.cpp can have, with some options changed.
ModelConfig model_with(const Options& changes) {
  ModelConfig c = small_model();
  c.activation = Activation::kGelu;
  c.embed_scale = false;
  for (const auto& [option, value] : changes) c.set(option, value);
  c.validate();
  return c;
}

const Options kRotary{{"position", "rotary"}, {"rotary-style", "half"}};
const Options kGated{
    {"norm", "rmsnorm"}, {"activation", "swiglu"}, {"bias", "false"}, {"kv-heads", "2"}, {"ffn", "72"}};

Options joined(Options a, const Options& b) {
  a.insert(b.begin(), b.end());
  return a;
}

TEST(ExportGguf, ImportedAgainItIsBitEqual) {
  for (const auto& [form, options] : std::vector<std::pair<std::string, Options>>{
           {"mpt", {}},
           {"mpt", {{"bias", "false"}, {"clip-qkv", "1.5"}, {"tied", "false"}, {"norm-epsilon", "1e-3"}}},
           {"mpt", {{"ffn", "50"}, {"kv-heads", "2"}}},
           {"mpt", {{"alibi-slopes", "0.5,0.25,0.125,0.0625"}}},
           {"bloom", {{"embedding-norm", "true"}}},
           {"bloom", {{"embedding-norm", "true"}, {"kv-heads", "1"}, {"tied", "false"}}},
           {"gptneox", kRotary},
           {"gptneox",
            joined(kRotary, {{"rotary-fraction", "0.25"}, {"parallel-residual", "true"}, {"tied", "false"}})},
           {"gptneox", joined(kRotary, {{"rotary-base", "500"}, {"kv-heads", "2"}})},
           {"llama", joined(kRotary, kGated)},
           {"llama", joined(joined(kRotary, kGated), {{"tied", "false"}, {"rotary-base", "500000"}})},
           {"gpt2", {{"position", "learned"}}},
           {"gpt2", {{"position", "learned"}, {"tied", "false"}}}}) {
    const ScratchDir dir;
    make_run(dir / "run", model_with(options));
    EXPECT_EQ(export_gguf({.run = dir / "run", .out = dir / "x.gguf"}).family, form);
    import_gguf(dir / "x.gguf", RunDir(dir / "again"));
    EXPECT_EQ(weights_of(dir / "run"), weights_of(dir / "again")) << form << Json(options);
    EXPECT_EQ(model_of(dir / "run"), model_of(dir / "again")) << form;
  }
}

TEST(ExportGguf, ModelsOfOtherFilesToo) {
  for (const char* name : {"bloom", "bloom-bf16", "bloom-sharded", "gpt2", "gpt-neox-serial", "llama", "llama-bin"}) {
    const ScratchDir dir;
    import_hf(kFixtures / "hf" / name, RunDir(dir / "run"), {.tokenizer = false});
    export_gguf({.run = dir / "run", .out = dir / "x.gguf"});
    const bool narrow = std::string(name) == "bloom-bf16";  // its norms are F32 in between
    import_gguf(dir / "x.gguf", RunDir(dir / "again"), {.type = narrow ? std::optional(DType::kBF16) : std::nullopt});
    EXPECT_EQ(weights_of(dir / "run"), weights_of(dir / "again")) << name;
    EXPECT_EQ(model_of(dir / "run"), model_of(dir / "again")) << name;
  }
  for (const char* name :
       {"bloom", "bloom-q8_0", "gpt2", "gptneox", "gptneox-serial", "llama", "llama-q4_k", "mpt", "mpt-f16"}) {
    const ScratchDir dir;
    import_gguf(kFixtures / "gguf/models" / (std::string(name) + ".gguf"), RunDir(dir / "run"));
    export_gguf({.run = dir / "run", .out = dir / "x.gguf"});
    import_gguf(dir / "x.gguf", RunDir(dir / "again"));
    EXPECT_EQ(weights_of(dir / "run"), weights_of(dir / "again")) << name;
    EXPECT_EQ(model_of(dir / "run"), model_of(dir / "again")) << name;
    EXPECT_EQ(load_tokenizer(find_checkpoint(dir / "run"))->hash(),
              load_tokenizer(find_checkpoint(dir / "again"))->hash());
  }
}

TEST(ExportGguf, KeysThatLlamaCppReads) {
  const ScratchDir dir;
  make_run(dir / "run", model_with({{"alibi-slopes", "0.5,0.25,0.125,0.0625"}, {"clip-qkv", "6"}}));
  export_gguf({.run = dir / "run", .out = dir / "x.gguf", .type = GgmlType::kF16});
  const Gguf file(dir / "x.gguf");
  EXPECT_EQ(file.text("general.architecture"), "mpt");
  EXPECT_EQ(file.integer("general.file_type"), 1);
  EXPECT_EQ(file.integer("mpt.context_length"), 24);
  EXPECT_EQ(file.integer("mpt.embedding_length"), 32);
  EXPECT_EQ(file.integer("mpt.block_count"), 2);
  EXPECT_EQ(file.integer("mpt.feed_forward_length"), 128);
  EXPECT_EQ(file.integer("mpt.attention.head_count"), 4);
  EXPECT_EQ(file.integer("mpt.vocab_size"), 256);
  EXPECT_EQ(file.number("mpt.attention.max_alibi_bias"), 4);  // 2^(-4 h / 4)
  EXPECT_EQ(file.number("mpt.attention.clamp_kqv"), 6);
  EXPECT_EQ(file.text("tokenizer.ggml.model"), "none");
  EXPECT_TRUE(file.find("blk.1.attn_output.bias"));
  EXPECT_FALSE(file.find("output.weight"));
}

// llama.cpp's GPT-NeoX has no tied embeddings, so it is given a copy; read again they are tied.
TEST(ExportGguf, TiedGptNeoxHasACopy) {
  const ScratchDir dir;
  make_run(dir / "run", model_with(kRotary));
  export_gguf({.run = dir / "run", .out = dir / "x.gguf"});
  const Gguf file(dir / "x.gguf");
  EXPECT_EQ(file.integer("gptneox.rope.dimension_count"), 8);
  EXPECT_EQ(file.boolean("gptneox.use_parallel_residual"), false);
  ASSERT_TRUE(file.find("output.weight"));
  EXPECT_TRUE(std::ranges::equal(file.find("output.weight")->bytes, file.find("token_embd.weight")->bytes));
}

TEST(ExportGguf, TypesOfMatricesAndVectors) {
  const ScratchDir dir;
  make_run(dir / "run", model_with({{"position", "learned"}}));
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0}) {
    const fs::path path = dir / fmt::format("{}.gguf", static_cast<int>(type));
    export_gguf({.run = dir / "run", .out = path, .type = type});
    const Gguf file(path);
    for (const GgufTensor& t : file.tensors()) {
      const bool kept = t.shape.size() == 1 || t.name == "position_embd.weight";
      EXPECT_EQ(t.type, kept ? GgmlType::kF32 : type) << t.name;
    }
  }
  // What Q8_0 holds is the nearest that its blocks can say.
  std::vector<float> exact(32 * 128), stored(exact.size());
  Safetensors(dir / "run" / kModelFile).read("layers.1.ffn.out.weight", exact);
  const Gguf blocks(dir / "8.gguf");
  read_blocks(GgmlType::kQ8_0, blocks.find("blk.1.ffn_down.weight")->bytes, stored);
  for (size_t block = 0; block < exact.size(); block += 32) {
    float largest = 0;
    for (size_t i = block; i < block + 32; ++i) largest = std::max(largest, std::abs(exact[i]));
    for (size_t i = block; i < block + 32; ++i) EXPECT_NEAR(exact[i], stored[i], largest * 0.0045);
  }
  EXPECT_EQ(blocks.integer("general.file_type"), 7);
}

struct Asked {
  std::string family{};
  std::optional<GgmlType> type{};
};
std::string refused(const Options& options, const Asked& asked = {}) {
  const ScratchDir dir;
  make_run(dir / "run", model_with(options));
  const GgufExport request{.run = dir / "run", .out = dir / "x.gguf", .family = asked.family, .type = asked.type};
  const std::string error = error_of([&] { export_gguf(request); });
  EXPECT_FALSE(fs::exists(dir / "x.gguf") || fs::exists(dir / "x.gguf.tmp")) << error;
  return error;
}

TEST(ExportGguf, WhatCannotBeSaidIsRefusedWithItsOption) {
  EXPECT_THAT(refused({{"activation", "relu"}}), HasSubstr("--activation is relu, mpt needs gelu"));
  EXPECT_THAT(refused({{"activation", "gelu-exact"}}), HasSubstr("--activation is gelu-exact, mpt needs gelu"));
  EXPECT_THAT(refused({{"norm-position", "post"}}), HasSubstr("--norm-position is post"));
  EXPECT_THAT(refused({{"embed-scale", "true"}}), HasSubstr("--embed-scale is true"));
  EXPECT_THAT(refused({{"score-scale", "0.3"}}), HasSubstr("--score-scale is 0.3"));
  EXPECT_THAT(refused({{"alibi-slopes", "0.5,0.25,0.125,0.06"}}), HasSubstr("--alibi-slopes"));
  EXPECT_THAT(refused({{"alibi-learned", "true"}}), HasSubstr("--alibi-learned"));
  EXPECT_THAT(refused({{"position", "sinusoidal"}}), HasSubstr("--position is sinusoidal"));
  EXPECT_THAT(refused({{"position", "rotary"}}), HasSubstr("--rotary-style is interleaved"));
  EXPECT_THAT(refused({}, {.family = "bloom"}), HasSubstr("--embedding-norm is false, bloom needs true"));
  EXPECT_THAT(refused({}, {.family = "gpt_neox"}), HasSubstr("'gpt_neox' is none of mpt, bloom, gptneox"));
  EXPECT_THAT(refused({{"norm-epsilon", "1.23456789e-5"}}), HasSubstr("--norm-epsilon 1.23456789e-05 has more digits"));
  EXPECT_THAT(refused(joined(kRotary, {{"rotary-base", "10000.0001"}})), HasSubstr("--rotary-base"));
  EXPECT_THAT(refused({{"ffn", "50"}}, {.type = GgmlType::kQ8_0}),
              HasSubstr("--type Q8_0: rows of 'blk.0.ffn_down.weight' have 50 elements"));
}

TEST(ExportGguf, NumbersBeyondTheTypeAreRefused) {
  const ScratchDir dir;
  ModelConfig config = model_with({});
  Transformer model(config, false);
  model.initialize(test_context(), 7);
  model.parameters().values()[0] = 1e9F;
  save_checkpoint(dir / "run", CheckpointContent{.model = model});
  for (const GgmlType type : {GgmlType::kF16, GgmlType::kQ8_0})
    EXPECT_THAT(error_of([&] { export_gguf({.run = dir / "run", .out = dir / "x.gguf", .type = type}); }),
                AllOf(HasSubstr(".weight'"), HasSubstr("too large for")));
  EXPECT_FALSE(fs::exists(dir / "x.gguf.tmp"));
}

TEST(ExportGguf, TheTokenizerComesBackAsItWas) {
  const ScratchDir dir;
  const auto bpe = hf_tokenizer(trained_bpe_json({{'t', 'h', 256}, {256, 'e', 257}}), "x");
  ModelConfig config = model_with({});
  config.vocab = 270;  // more rows than entries
  make_run(dir / "bpe", config, bpe.get());
  config.vocab = 256;
  make_run(dir / "byte", config, byte_tokenizer().get());
  for (const char* name : {"bpe", "byte"}) {
    const fs::path path = dir / fmt::format("{}.gguf", name);
    EXPECT_EQ(export_gguf({.run = dir / name, .out = path}).tokenizer, name);
    EXPECT_EQ(gguf_tokenizer(Gguf(path))->hash(), load_tokenizer(find_checkpoint(dir / name))->hash());
    EXPECT_EQ(Gguf(path).texts("tokenizer.ggml.tokens")->size(), name == std::string("bpe") ? 270U : 256U);
  }
  make_run(dir / "word", config, word_tokenizer("the 2\ncat 1\nsat 1\nmat 1\n", "dict").get());
  const GgufExport request{.run = dir / "word", .out = dir / "word.gguf"};
  EXPECT_THAT(error_of([&] { export_gguf(request); }), AllOf(HasSubstr("'word'"), HasSubstr("--no-tokenizer")));
  GgufExport without = request;
  without.tokenizer = false;
  EXPECT_EQ(export_gguf(without).tokenizer, "");
  EXPECT_FALSE(gguf_tokenizer(Gguf(dir / "word.gguf")));
}

TEST(ExportGguf, NothingOfOthersIsReplaced) {
  const ScratchDir dir;
  make_run(dir / "run", model_with({}));
  const GgufExport request{.run = dir / "run", .out = dir / "new/x.gguf"};
  fs::create_directory(dir / "new");
  dir.write("new/x.gguf", "mine");
  EXPECT_THAT(error_of([&] { export_gguf(request); }), HasSubstr("is there already"));
  EXPECT_EQ(read_text(request.out), "mine");
  fs::remove(request.out);
  dir.write("new/x.gguf.tmp", "mine too");
  EXPECT_THAT(error_of([&] { export_gguf(request); }), HasSubstr("Move it away"));
  EXPECT_EQ(read_text(dir / "new/x.gguf.tmp"), "mine too");
  fs::remove_all(dir / "new");
  make_directories(dir / "new/x.gguf.tmp");
  dir.write("new/x.gguf.tmp/.longshot-export", "");
  dir.write("new/x.gguf.tmp/export", "what a killed export left");
  EXPECT_NO_THROW(export_gguf(request));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "new"), {}), 1);
}

TEST(ExportGguf, WhatComesIntoItsPlaceMeanwhileStays) {
  const ScratchDir dir;
  make_run(dir / "run", model_with({}));
  GgufExport request{.run = dir / "run", .out = dir / "x.gguf"};
  request.watch.on_progress = [&](double) { dir.write("x.gguf", "mine"); };
  EXPECT_THAT(error_of([&] { export_gguf(request); }), HasSubstr("is there already"));
  EXPECT_EQ(read_text(request.out), "mine");
  EXPECT_FALSE(fs::exists(dir / "x.gguf.tmp"));
}

TEST(ExportGguf, AStopOrAFullDiskLeavesNothing) {
  const ScratchDir dir;
  make_run(dir / "run", model_with({}));
  GgufExport request{.run = dir / "run", .out = dir / "out/x.gguf"};
  request.watch.should_stop = [] { return true; };
  EXPECT_THROW(export_gguf(request), Stopped);
  request.watch = {};
  (void)std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{40000, before.rlim_max};  // as a full disk; the file has more
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THAT(error_of([&] { export_gguf(request); }), HasSubstr("x.gguf.tmp"));
  setrlimit(RLIMIT_FSIZE, &before);
  (void)std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_TRUE(!fs::exists(dir / "out") || fs::is_empty(dir / "out"));
  EXPECT_NO_THROW(export_gguf(request));
}

}  // namespace
}  // namespace longshot
