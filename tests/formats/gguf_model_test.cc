// GGUF models of every architecture, written by llama.cpp's converter, against what PyTorch computes from their weights and the
// ids that llama.cpp gives (fixtures/gguf/models, clients/make_gguf_models.py); and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/families.h"
#include "formats/gguf_builder.h"
#include "formats/gguf_families.h"
#include "formats/oracle.h"
#include "references.h"
#include "run/gguf_tokenizer.h"
#include "run/import_model.h"
#include "run/loaded_model.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const fs::path kModels = kFixtures / "gguf/models";

fs::path model_file(const std::string& name) { return kModels / (name + ".gguf"); }

class GgufModels : public testing::TestWithParam<std::string> {
 protected:
  const Safetensors oracle_{kModels / (GetParam() + ".safetensors")};
};

TEST_P(GgufModels, ComputeWhatPyTorchDoes) {
  const ScratchDir dir;
  import_gguf(model_file(GetParam()), RunDir(dir / "run"));
  const LoadedModel loaded = load_model(dir / "run");
  const std::vector<int32_t> tokens = ids(oracle_, "ids");
  EXPECT_LT(largest_difference(log_probabilities(*loaded.model, tokens), floats(oracle_, "log_probabilities")), 1e-4);
  const std::vector<int32_t> next = ids(oracle_, "greedy");
  EXPECT_EQ(greedy(*loaded.model, {tokens.begin(), tokens.begin() + 8}, next.size()), next);
}

TEST_P(GgufModels, HaveTheIdsOfLlamaCpp) {
  const auto tokenizer = gguf_tokenizer(Gguf(model_file(GetParam())));
  ASSERT_TRUE(tokenizer);
  const JsonTree texts = parse_json_tree(read_text(kFixtures / "tokenizers/texts.json"), "texts.json");
  const std::vector<int32_t> all = ids(oracle_, "text_ids"), lengths = ids(oracle_, "text_lengths");
  ASSERT_EQ(texts.size(), lengths.size());
  auto at = all.begin();
  for (size_t i = 0; i < texts.size(); at += lengths[i++]) {
    const auto text = texts[i].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), std::vector<int32_t>(at, at + lengths[i])) << testing::PrintToString(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GgufModels,
                         testing::Values("baichuan", "bloom", "bloom-q8_0", "gpt2", "gptneox", "gptneox-serial",
                                         "llama", "llama-q4_k", "mpt", "mpt-f16"),
                         [](const auto& fixture) {
                           std::string name = fixture.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

DType type_of(const RunDir& run, const std::string& tensor) {
  return Safetensors(run.checkpoint(0) / kModelFile).at(tensor).dtype;
}

TEST(GgufImport, TypesStayAndBlocksBecomeFloats) {
  const ScratchDir dir;
  const std::string matrix = "layers.0.ffn.in.weight", vector = "layers.0.ffn_norm.weight";
  for (const auto& [name, type] : {std::pair("mpt-f16", DType::kF16), std::pair("gptneox", DType::kBF16),
                                   std::pair("bloom-q8_0", DType::kF32), std::pair("llama-q4_k", DType::kF32)}) {
    const RunDir run(dir / name);
    import_gguf(model_file(name), run);
    EXPECT_EQ(type_of(run, matrix), type) << name;
    EXPECT_EQ(type_of(run, vector), DType::kF32) << name;
  }
  const RunDir narrow(dir / "narrow");
  import_gguf(model_file("llama-q4_k"), narrow, {.type = DType::kBF16});
  EXPECT_EQ(type_of(narrow, matrix), DType::kBF16);
  EXPECT_EQ(type_of(narrow, vector), DType::kBF16);
}

// Where an old file holds the output's matrix as a copy, it is one with the embedding's.
TEST(GgufImport, ACopyOfTheEmbeddingIsTied) {
  GgufBuilder file(model_file("gpt2"));
  GgufBuilder::Tensor copy = file.tensor("token_embd.weight");
  copy.name = "output.weight";
  file.tensors.push_back(copy);
  const ScratchDir dir;
  EXPECT_TRUE(read_gguf_model(Gguf(dir.write("same.gguf", file.bytes()))).config.tied);
  import_gguf(dir / "same.gguf", RunDir(dir / "same"));
  file.tensor("output.weight").bytes[0] ^= 1;
  EXPECT_FALSE(read_gguf_model(Gguf(dir.write("other.gguf", file.bytes()))).config.tied);
  import_gguf(dir / "other.gguf", RunDir(dir / "other"));
}

TEST(GgufImport, OptionalBiasesOfMptGo) {
  GgufBuilder file(model_file("mpt"));
  EXPECT_FALSE(read_gguf_model(Gguf(model_file("mpt"))).config.bias);
  for (const GgufBuilder::Tensor& t : std::vector(file.tensors)) {
    if (t.shape.size() == 2 && t.name == "token_embd.weight") continue;
    const std::string name = t.name.substr(0, t.name.size() - 6) + "bias";
    file.tensors.push_back({name, 0, {t.shape[0]}, std::string(static_cast<size_t>(t.shape[0]) * 4, '\0')});
  }
  const ScratchDir dir;
  import_gguf(dir.write("x.gguf", file.bytes()), RunDir(dir / "run"));
  EXPECT_TRUE(load_model(dir / "run").info.model.bias);
}

using Change = std::function<void(GgufBuilder&)>;

// What importing a changed fixture says; "" where it says nothing. No checkpoint is left where it does.
std::string refused(const std::string& fixture, const Change& change) {
  GgufBuilder file(model_file(fixture));
  change(file);
  const ScratchDir dir;
  const fs::path path = dir.write("x.gguf", file.bytes());
  try {
    import_gguf(path, RunDir(dir / "run"));
  } catch (const Error& e) {
    EXPECT_TRUE(checkpoint_steps(RunDir(dir / "run")).empty()) << e.what();
    return e.what();
  }
  return "";
}

template <class T>
Change with(const std::string& key, T value) {
  return [=](GgufBuilder& file) { file.set(key, value); };
}
Change without(const std::string& key) {
  return [=](GgufBuilder& file) { file.drop(key); };
}

TEST(GgufKeysOfModels, WhatCannotBeDoneIsNamed) {
  const struct {
    const char* fixture;
    Change change;
    const char* message;
  } cases[] = {
      {"bloom", with("general.architecture", "jais"),
       "the architecture is \"jais\", which this program does not read. It"},
      {"bloom", with("general.architecture", "falcon"), "falcon always rotates"},
      {"bloom", without("general.architecture"), "has no key \"general.architecture\""},
      {"bloom", with("general.type", "adapter"), "\"general.type\" is \"adapter\""},
      {"bloom", with("split.count", 2u), "\"split.count\" is 2"},
      {"bloom", with("bloom.new.idea", 3u), "\"bloom.new.idea\" is 3: this program does not know"},
      {"bloom", with("bloom.attention.head_count", 7u), "--heads (7) must divide --dim (24)"},
      {"bloom", with("bloom.attention.head_count", -1.5f),
       "\"bloom.attention.head_count\" is -1.5, not a whole number"},
      {"bloom", with("bloom.attention.head_count", std::vector<float>{6, 6}), "\"count\":2"},
      {"bloom", with("bloom.attention.key_length", 8u), "\"bloom.attention.key_length\" is 8"},
      {"bloom", with("bloom.attention.causal", false), "\"bloom.attention.causal\" is false"},
      {"bloom", without("bloom.embedding_length"), "has no \"bloom.embedding_length\""},
      {"bloom", without("bloom.attention.layer_norm_epsilon"), "\"bloom.attention.layer_norm_epsilon\" is absent"},
      {"bloom", with("bloom.attention.layer_norm_epsilon", NAN), "not a number"},
      {"bloom", with("bloom.block_count", 4000000000u), "claims 4000000000 layers, but has only 29 tensors"},
      {"bloom", with("bloom.feed_forward_length", 4000000000u), "--ffn must be at most"},
      {"mpt", with("mpt.attention.max_alibi_bias", 0.0f), "the models with ALiBi are read"},
      {"mpt", without("mpt.attention.max_alibi_bias"), "\"mpt.attention.max_alibi_bias\" is absent"},
      {"gptneox", without("gptneox.use_parallel_residual"), "\"gptneox.use_parallel_residual\" is absent"},
      {"gptneox", with("gptneox.rope.scaling.type", "yarn"), "\"gptneox.rope.scaling.type\" is \"yarn\""},
      {"gptneox", with("gptneox.rope.scaling.factor", 4.0f), "\"gptneox.rope.scaling.factor\" is 4"},
      {"gptneox", with("gptneox.rope.scale_linear", 2.0f), "\"gptneox.rope.scale_linear\" is 2"},
      {"gptneox", with("gptneox.rope.scaling.attn_factor", 0.5f), "\"gptneox.rope.scaling.attn_factor\" is 0.5"},
      {"gptneox", with("gptneox.rope.dimension_count", 10u), "\"gptneox.rope.dimension_count\" is 10"},
      {"llama", with("llama.rope.dimension_count", 4u), "a Llama turns all 6 of a head"},
      {"llama", with("llama.expert_count", 8u), "\"llama.expert_count\" is 8"},
      {"baichuan", with("baichuan.block_count", 32u), "\"baichuan.block_count\" is 32: a Baichuan of 40 layers"},
  };
  for (const auto& [fixture, change, message] : cases) EXPECT_THAT(refused(fixture, change), HasSubstr(message));
}

TEST(GgufKeysOfModels, WhatSaysNothingIsTaken) {
  EXPECT_EQ(refused("gptneox", with("gptneox.rope.scaling.factor", 0.0f)), "");
  EXPECT_EQ(refused("gptneox", with("gptneox.rope.scaling.type", "linear")), "");
  EXPECT_EQ(refused("llama", with("llama.expert_count", 0u)), "");
  EXPECT_EQ(refused("bloom", with("split.count", 1u)), "");
  EXPECT_EQ(refused("bloom", with("another.program.key", "its own")), "");
}

TEST(GgufKeysOfModels, AllRefusalsAtOnce) {
  EXPECT_THAT(refused("llama",
                      [](GgufBuilder& file) {
                        file.set("llama.expert_count", 8u);
                        file.set("llama.rope.scaling.type", "longrope");
                        file.set("llama.attention.scale", 0.1f);
                        file.tensor("blk.0.ffn_up.weight").type = 6;  // Q5_0
                        file.tensor("blk.0.ffn_up.weight").shape = {64, 32};
                        file.tensor("blk.0.ffn_up.weight").bytes.resize(64 * 22);
                      }),
              AllOf(HasSubstr("expert_count"), HasSubstr("longrope"), HasSubstr("\"llama.attention.scale\" is 0.1"),
                    HasSubstr("tensors of Q5_0")));
}

TEST(GgufKeysOfModels, EveryNumberOfTurnedDimensionsIsKept) {
  for (int64_t width = 2; width <= 512; ++width) {
    for (int64_t dims = 2; dims <= width; dims += 2) {
      ModelConfig model;
      model.dim = width, model.heads = 1;
      model.set("rotary-fraction", fmt::format("{}", rotary_fraction(dims, width)));
      ASSERT_EQ(rotated_dims(model), dims) << width;
    }
  }
}

TEST(GgufKeysOfModels, NumbersAreTheDecimalOnesThatWereMeant) {
  const ModelConfig model = read_gguf_model(Gguf(model_file("bloom"))).config;
  EXPECT_EQ(model.norm_epsilon, 1e-5);
}

TEST(HostileGgufModels, TensorsThatAreWrong) {
  const auto dropped = [](const std::string& name) { return [=](GgufBuilder& f) { f.drop_tensor(name); }; };
  EXPECT_THAT(refused("bloom", dropped("blk.1.ffn_up.weight")), HasSubstr("has no tensor 'blk.1.ffn_up.weight'"));
  EXPECT_THAT(refused("bloom", dropped("token_embd_norm.bias")), HasSubstr("has no tensor 'token_embd_norm.bias'"));
  EXPECT_THAT(refused("gptneox", dropped("output.weight")), testing::IsEmpty());  // tied, though llama.cpp refuses it
  EXPECT_THAT(refused("llama",
                      [](GgufBuilder& f) {
                        std::swap(f.tensor("blk.0.ffn_up.weight").shape[0], f.tensor("blk.0.ffn_up.weight").shape[1]);
                      }),
              HasSubstr("tensor 'blk.0.ffn_up.weight' has the shape [36, 64], the configuration asks for [64, 36]"));
  EXPECT_THAT(refused("llama",
                      [](GgufBuilder& f) {
                        f.tensors.push_back({"rope_freqs.weight", 0, {3}, std::string(12, '\0')});
                      }),
              HasSubstr("\"rope_freqs.weight\" scales rotary positions"));
  EXPECT_THAT(refused("mpt",
                      [](GgufBuilder& f) {
                        f.tensors.push_back({"blk.0.attn_q_norm.weight", 0, {24}, std::string(96, '\0')});
                      }),
              HasSubstr("tensor 'blk.0.attn_q_norm.weight' of shape [24] has no place in the model"));
  const auto number = [](const char* fixture, const char* tensor, const std::string& bytes) {
    return refused(fixture, [=](GgufBuilder& f) { f.tensor(tensor).bytes.replace(8, bytes.size(), bytes); });
  };
  EXPECT_THAT(number("bloom", "blk.0.attn_qkv.weight", little_endian(NAN)),
              AllOf(HasSubstr("qkv.weight'"), HasSubstr("holds a number that is not finite")));
  EXPECT_THAT(number("mpt-f16", "blk.0.ffn_up.weight", "\xFF\x7F"), HasSubstr("is not finite"));
  EXPECT_THAT(
      refused("bloom-q8_0", [](GgufBuilder& f) { f.tensor("blk.0.ffn_up.weight").bytes.replace(34, 2, "\xFF\x7F"); }),
      HasSubstr("holds a number that is not finite"));
  EXPECT_THAT(refused("bloom-q8_0",
                      [](GgufBuilder& f) {
                        f.tensor("blk.0.attn_norm.weight").type = 8;
                        f.tensor("blk.0.attn_norm.weight").bytes.resize(2 * 34);
                      }),
              HasSubstr("the vector \"blk.0.attn_norm.weight\" is Q8_0"));
}

TEST(HostileGgufModels, TokenizersThatAreWrong) {
  const std::string tokens = "tokenizer.ggml.tokens";
  EXPECT_THAT(refused("bloom", with(tokens, std::vector<std::string>{"a", "b"})),
              HasSubstr("the configuration asks for [2, 24]"));
  EXPECT_THAT(refused("bloom", with(tokens, std::vector<float>(704))), HasSubstr("not a list of texts"));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.token_type", std::vector<float>{1})),
              HasSubstr("704 tokens, but 1 types"));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.token_type", std::vector<float>{1.7f})),
              HasSubstr("no whole number"));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.token_type", std::vector<float>{1e30f})),
              HasSubstr("holds 1.0000000150474662e+30"));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.bos_token_id", 70000u)), HasSubstr("a special token is 70000"));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.eos_token_id", 4294967295u)), HasSubstr("which is no token"));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.pre", "default")),
              AllOf(HasSubstr("'default'"), HasSubstr("--no-tokenizer")));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.model", "t5")), HasSubstr("'t5'"));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.merges", std::vector<std::string>{"a"})), HasSubstr("merge"));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.merges", std::vector<std::string>{"\xFF a"})),
              HasSubstr("not UTF-8"));
  EXPECT_THAT(refused("bloom", with("tokenizer.ggml.add_eos_token", true)), HasSubstr("add_eos_token"));
  EXPECT_THAT(refused("llama", with("tokenizer.ggml.scores", std::vector<float>(420, NAN))), HasSubstr("holds nan"));
  EXPECT_THAT(refused("llama", with("tokenizer.ggml.remove_extra_whitespaces", true)), HasSubstr("spaces are kept"));
}

TEST(HostileGgufModels, CutShort) {
  const ScratchDir dir;
  for (const char* name : {"mpt", "llama"}) {
    const std::string whole = GgufBuilder(model_file(name)).bytes();
    const size_t step = whole.size() / 60;
    for (size_t size = 0; size < whole.size() - 32; size += step) {
      const MemoryFile file(whole.substr(0, size));
      EXPECT_NE(error_of([&] { import_gguf(file.path(), RunDir(dir / "run")); }), "") << name << " " << size;
      EXPECT_FALSE(fs::exists(dir / "run"));
    }
  }
}

// No tokenizer is none, and a model all the same.
TEST(GgufImport, WithoutATokenizer) {
  const ScratchDir dir;
  GgufBuilder file(model_file("mpt"));
  file.set("tokenizer.ggml.model", "none");
  file.drop("tokenizer.ggml.tokens");
  EXPECT_THAT(error_of([&] { import_gguf(dir.write("x.gguf", file.bytes()), RunDir(dir / "a")); }),
              HasSubstr("has no \"mpt.vocab_size\""));
  file.set("mpt.vocab_size", 700u);
  const ImportSummary made = import_gguf(dir.write("x.gguf", file.bytes()), RunDir(dir / "b"));
  EXPECT_EQ(made.tokenizer_name, "");
  EXPECT_EQ(made.config.vocab, 700);
}

}  // namespace
}  // namespace longshot
