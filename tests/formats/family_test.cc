// Every family of Hugging Face models against what PyTorch computes from the same files (fixtures/hf,
// clients/make_hf_models.py), and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "formats/hf_directory.h"
#include "formats/oracle.h"
#include "formats/scratch.h"
#include "formats/torch_builder.h"
#include "references.h"
#include "run/import_model.h"
#include "run/loaded_model.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const fs::path kModels = kFixtures / "hf";

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, ComputeWhatPyTorchDoes) {
  const ScratchDir dir;
  import_hf(kModels / GetParam(), RunDir(dir / "run"), {.tokenizer = false});
  const LoadedModel loaded = load_model(dir / "run");
  const Safetensors oracle(kModels / GetParam() / "oracle.safetensors");
  const std::vector<int32_t> tokens = ids(oracle, "ids");
  const std::vector<float> ours = log_probabilities(*loaded.model, tokens);
  const std::vector<float> theirs = floats(oracle, "log_probabilities");
  ASSERT_EQ(ours.size(), theirs.size());
  EXPECT_LT(largest_difference(ours, theirs), 1e-4);
  const std::vector<int32_t> next = ids(oracle, "greedy");
  EXPECT_EQ(greedy(*loaded.model, {tokens.begin(), tokens.begin() + 24}, next.size()), next);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Families,
                         testing::Values("baichuan", "bloom", "bloom-bf16", "bloom-sharded", "falcon-rw",
                                         "falcon-rw-bin", "gpt2", "gpt-neox", "gpt-neox-serial", "gpt-neox-odd",
                                         "llama", "llama-bin", "mpt", "mpt-f16"),
                         [](const auto& fixture) {
                           std::string name = fixture.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Slopes that are powers of two times positions below 256 have 8 significant bits: transformers' rounding of Falcon's
// biases then changes nothing. Others it moves by up to 2^-9 of m j, which is seen.
TEST(Falcon, RoundedBiasesAreNotOurs) {
  for (const auto& [name, exact] : {std::pair("falcon-rw", true), std::pair("falcon-rw-bin", false)}) {
    const Safetensors oracle(kModels / name / "oracle.safetensors");
    const double moved = largest_difference(floats(oracle, "log_probabilities"), floats(oracle, "rounded"));
    if (exact) {
      EXPECT_EQ(moved, 0);
    } else {
      EXPECT_GT(moved, 0.01);
    }
  }
}

TEST(HfImport, SixteenBitsStaySo) {
  const ScratchDir dir;
  const auto type_of = [&](const char* name, const char* run, std::optional<DType> type) {
    import_hf(kModels / name, RunDir(dir / run), {.type = type, .tokenizer = false});
    return Safetensors(RunDir(dir / run).checkpoint(0) / kModelFile).at("embed.weight").dtype;
  };
  EXPECT_EQ(type_of("bloom-bf16", "a", {}), DType::kBF16);
  EXPECT_EQ(type_of("mpt-f16", "b", {}), DType::kF16);
  EXPECT_EQ(type_of("bloom-bf16", "c", DType::kF32), DType::kF32);
  EXPECT_THAT(error_of([&] { type_of("bloom", "c", {}); }), HasSubstr("holds a run already"));
}

class Directory {
 public:
  explicit Directory(const std::string& fixture) {
    fs::copy(kModels / fixture, scratch_ / "model", fs::copy_options::recursive);
  }
  fs::path path() const { return scratch_ / "model"; }
  fs::path run() const { return scratch_ / "run"; }
  void import() const { import_hf(path(), RunDir(run()), {.tokenizer = false}); }
  std::string error() const {
    const std::string message = error_of([&] { import(); });
    EXPECT_FALSE(fs::exists(run()));
    return message;
  }
  void write(const std::string& name, const std::string& text) const { scratch_.write("model/" + name, text); }
  std::string read(const std::string& name) const { return read_text(path() / name); }

 private:
  ScratchDir scratch_;
};

// A fixture's config.json with other values: what reading it refuses.
std::string refused(const std::string& fixture, const JsonTree& changes) {
  JsonTree json = parse_json_tree(read_text(kModels / fixture / "config.json"), "config.json");
  json.merge_patch(changes);
  HfConfig config(json, "config.json");
  return error_of([&] {
    const Family& family = family_of(config);
    read_config(family, config);
    require_supported(family, config);
  });
}

TEST(HfConfigs, WhatCannotBeDoneIsNamed) {
  const struct {
    const char* fixture;
    JsonTree changes;
    const char* message;
  } cases[] = {
      {"bloom",
       {{"apply_residual_connection_post_layernorm", true}},
       "\"apply_residual_connection_post_layernorm\" is true"},
      {"bloom", {{"slow_but_exact", true}, {"pretraining_tp", 2}}, "\"slow_but_exact\" is true"},
      {"bloom", {{"is_causal", false}}, "\"is_causal\" is false"},
      {"bloom", {{"model_type", "jais"}}, "\"model_type\" is \"jais\", which this program does not know"},
      {"bloom", {{"quantization_config", {{"bits", 4}}}}, "\"quantization_config\" is {\"bits\":4}"},
      {"bloom", {{"num_attention_heads", 5}}, "\"n_head\" is 6 but \"num_attention_heads\" is 5"},
      {"bloom", {{"n_head", 7}}, "--heads (7) must divide --dim (24)"},
      {"bloom", {{"hidden_size", nullptr}}, "has no \"n_embed\""},
      {"bloom", {{"n_layer", "two"}}, "\"n_layer\" is \"two\", not a whole number"},
      {"bloom", {{"vocab_size", -1}}, "\"vocab_size\" is -1, not a whole number"},
      {"bloom", {{"hidden_size", 1e300}}, "not a whole number"},
      {"mpt", {{"attn_config", {{"alibi", false}}}}, "\"attn_config.alibi\" is false"},
      {"mpt", {{"attn_config", {{"qk_ln", true}}}}, "\"attn_config.qk_ln\" is true"},
      {"mpt", {{"attn_config", {{"attn_type", "multiquery_attention"}}}}, "\"attn_config.attn_type\""},
      {"mpt", {{"attn_config", {{"prefix_lm", true}}}}, "\"attn_config.prefix_lm\" is true"},
      {"mpt", {{"attn_config", 3}}, "\"attn_config\" is 3, not an object"},
      {"mpt", {{"attn_config", {{"attn_logit_softcapping", 30}}}}, "\"attn_config.attn_logit_softcapping\" is 30"},
      {"mpt", {{"ffn_config", {{"ffn_act_fn", {{"name", "relu"}}}}}}, "\"ffn_config.ffn_act_fn.name\" is \"relu\""},
      {"mpt", {{"block_overrides", {{"order", 1}}}}, "\"block_overrides\""},
      {"mpt", {{"norm_eps", 1e-3}}, "\"layer_norm_epsilon\" is 1e-05 but \"norm_eps\" is 0.001"},
      {"mpt", {{"logit_scale", "inv_sqrt_d_model"}}, "\"logit_scale\""},
      {"mpt", {{"norm_type", "rmsnorm"}}, "\"norm_type\" is \"rmsnorm\""},
      {"mpt", {{"expansion_ratio", 1e30}}, "\"expansion_ratio\" is 1e+30"},
      {"mpt", {{"expansion_ratio", 1e-9}}, "\"expansion_ratio\" is 1e-09, which leaves a width of 0"},
      {"mpt", {{"attn_config", {{"alibi_bias_max", 1e30}}}}, "alibi_bias_max\" is 1e+30, not above 0"},
      {"mpt", {{"attn_config", {{"alibi_bias_max", 0}}}}, "alibi_bias_max\" is 0, not above 0"},
      {"falcon-rw", {{"alibi", false}}, "\"alibi\" is false"},
      {"falcon-rw", {{"multi_query", nullptr}}, "\"multi_query\" is absent"},
      {"falcon-rw", {{"parallel_attn", true}}, "\"parallel_attn\" is true"},
      {"falcon-rw", {{"num_kv_heads", 2}}, "\"num_kv_heads\" is 2"},
      {"falcon-rw", {{"new_decoder_architecture", true}}, "\"new_decoder_architecture\" is true"},
      {"falcon-rw", {{"num_attention_heads", 1000000000}, {"num_kv_heads", nullptr}}, "--heads must be at most"},
      {"baichuan", {{"z_loss_weight", 0}}, "\"z_loss_weight\" is 0"},
      {"baichuan", {{"max_position_embeddings", 4096}}, "\"max_position_embeddings\" is 4096"},
      {"gpt2", {{"scale_attn_by_inverse_layer_idx", true}}, "\"scale_attn_by_inverse_layer_idx\" is true"},
      {"gpt2", {{"add_cross_attention", true}}, "\"add_cross_attention\" is true"},
      {"gpt2", {{"activation_function", "silu"}}, "\"activation_function\" is \"silu\""},
      {"gpt-neox", {{"attention_bias", false}}, "\"attention_bias\" is false"},
      {"gpt-neox", {{"rope_parameters", {{"rope_type", "yarn"}}}}, "\"rope_parameters.rope_type\" is \"yarn\""},
      {"gpt-neox", {{"rope_parameters", {{"type", "linear"}}}}, "\"rope_parameters.type\" is \"linear\""},
      {"gpt-neox",
       {{"rope_parameters", {{"full_attention", {{"rope_theta", 5}}}}}},
       "\"rope_parameters.full_attention\" is {\"rope_theta\":5}"},
      {"gpt-neox", {{"rope_parameters", {{"partial_rotary_factor", 1e-3}}}}, "turn 0 of the 8 elements of a head"},
      {"gpt-neox", {{"rope_parameters", {{"partial_rotary_factor", 1e30}}}}, "--rotary-fraction: 1e+30"},
      {"gpt-neox", {{"hidden_size", 36}, {"rope_parameters", {{"partial_rotary_factor", 1.0}}}}, "turn 9 of the 9"},
      {"llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}, "\"rope_scaling.type\" is \"linear\""},
      {"llama", {{"rope_scaling", {{"factor", 2}}}}, "\"rope_scaling\" is {\"factor\":2}"},
      {"llama", {{"partial_rotary_factor", 0.5}}, "\"partial_rotary_factor\" is 0.5"},
      {"llama", {{"attention_bias", true}}, "\"attention_bias\" is true"},
      {"llama", {{"head_dim", 16}}, "\"head_dim\" is 16"},
      {"llama", {{"hidden_act", "gelu"}}, "\"hidden_act\" is \"gelu\""},
      {"llama", {{"num_key_value_heads", 4}}, "--kv-heads (4) must divide --heads (6)"},
  };
  for (const auto& [fixture, changes, message] : cases) EXPECT_THAT(refused(fixture, changes), HasSubstr(message));
}

TEST(HfConfigs, AllRefusalsAtOnce) {
  const std::string error = refused("llama", {{"attention_bias", true}, {"hidden_act", "gelu"}});
  EXPECT_THAT(error, HasSubstr("attention_bias"));
  EXPECT_THAT(error, HasSubstr("hidden_act"));
}

TEST(HfConfigs, OlderNamesOfRotaryPositions) {
  HfConfig json({{"model_type", "gpt_neox"},
                 {"vocab_size", 9},
                 {"hidden_size", 32},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", 2},
                 {"rotary_emb_base", 500},
                 {"rotary_pct", 0.5}},
                "config.json");
  const Json options = read_config(family_of(json), json).to_json();
  EXPECT_EQ(options["rotary-base"], "500");
  EXPECT_EQ(options["rotary-fraction"], "0.5");
}

// transformers' MPT has no biases, whatever "no_bias" says; llm-foundry's has them.
TEST(HfConfigs, BiasesOfAnMptAreThoseOfItsFile) {
  const Directory dir("mpt");
  JsonTree json = parse_json_tree(dir.read("config.json"), "config.json");
  json["no_bias"] = false;
  dir.write("config.json", json.dump());
  dir.import();
  EXPECT_FALSE(load_model(dir.run()).model->config().bias);
}

TEST(HfConfigs, SlopesOfAnotherMaximum) {
  JsonTree json = parse_json_tree(read_text(kModels / "mpt/config.json"), "config.json");
  json["attn_config"]["alibi_bias_max"] = 4;
  HfConfig config(json, "config.json");
  const ModelConfig model = read_config(family_of(config), config);
  const std::unique_ptr<Position> position = model.make_position();
  const std::span<const float> slopes = position->bias(0).slopes;
  ASSERT_EQ(slopes.size(), 6u);
  for (size_t h = 0; h < 4; ++h) EXPECT_NEAR(slopes[h], std::exp2(-static_cast<double>(h + 1)), 1e-6);
  EXPECT_NEAR(slopes[4], std::exp2(-0.5), 1e-6);
}

TEST(HfDirectories, IndexAndPartsMustAgree) {
  const std::string name = "model.safetensors.index.json";
  const Directory dir("bloom-sharded");
  const JsonTree good = parse_json_tree(dir.read(name), name);
  const std::string tensor = "transformer.ln_f.weight", part = good["weight_map"][tensor];
  const auto with = [&](const JsonTree& to) {
    JsonTree changed = good;
    changed["weight_map"][tensor] = to;
    dir.write(name, changed.dump());
    return dir.error();
  };
  EXPECT_THAT(with("../model.safetensors"), HasSubstr("'../model.safetensors' is not the plain name of a file"));
  EXPECT_THAT(with("/etc/passwd"), HasSubstr("is not the plain name"));
  EXPECT_THAT(with(""), HasSubstr("is not the plain name"));
  EXPECT_THAT(with(3), HasSubstr("is not text"));
  EXPECT_THAT(with("model-9.safetensors"), HasSubstr("names 'model-9.safetensors', which is not there"));
  for (const auto& [other, file] : good["weight_map"].items()) {
    if (file == part) continue;
    EXPECT_THAT(with(file), HasSubstr("says that 'transformer.ln_f.weight' is in"));
    break;
  }
  JsonTree fewer = good;
  fewer["weight_map"].erase(tensor);
  dir.write(name, fewer.dump());
  EXPECT_THAT(dir.error(), HasSubstr("does not know 'transformer.ln_f.weight'"));
  dir.write(name, "{\"weight_map\": {}}");
  EXPECT_THAT(dir.error(), HasSubstr("names no tensor"));
  dir.write(name, "[]");
  EXPECT_THAT(dir.error(), HasSubstr("has no object \"weight_map\""));
  dir.write(name, good.dump());
  fs::resize_file(dir.path() / part, 100);
  EXPECT_THAT(dir.error(), HasSubstr("Was"));
}

// Small files would be large models.
TEST(HfDirectories, TensorsThatRepeatOneStorageAreRefused) {
  const ScratchDir dir;
  const auto open = [&](int tensors) {
    std::vector<std::pair<std::string, std::string>> items;
    const std::string storage = build::storage("FloatStorage", "0", 4096);
    for (int i = 0; i < tensors; ++i) items.emplace_back(fmt::format("t{}", i), build::tensor(storage, 0, {4096}, {1}));
    dir.write("pytorch_model.bin", build::torch_zip(build::dict(items), {{"0", std::string(size_t{4} * 4096, '\0')}}));
    open_hf_tensors(dir / ".");
  };
  EXPECT_NO_THROW(open(2)) << "tied";
  EXPECT_THAT(error_of([&] { open(4); }), HasSubstr("they repeat what it holds"));
}

TEST(HfDirectories, NumbersThatAreNotFiniteAreNamed) {
  const Directory dir("bloom");
  std::string bytes = dir.read("model.safetensors");
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  dir.write("model.safetensors", bytes);
  EXPECT_THAT(dir.error(), AllOf(HasSubstr(dir.path().string()), HasSubstr("tensor 'transformer."),
                                 HasSubstr("a number that is not finite")));
}

TEST(HfDirectories, CutConfigurations) {
  const Directory dir("llama");
  const std::string whole = dir.read("config.json");
  for (size_t size = 0; size + 3 < whole.size(); size += 7) {
    dir.write("config.json", whole.substr(0, size));
    EXPECT_NE(dir.error(), "") << size;
  }
  dir.write("config.json", "[1]");
  EXPECT_THAT(dir.error(), HasSubstr("an object was expected"));
}

TEST(HfDirectories, WithoutATokenizerTheWayIsNamed) {
  const ScratchDir dir;
  EXPECT_THAT(error_of([&] { import_hf(kModels / "bloom", RunDir(dir / "run")); }), HasSubstr("--no-tokenizer"));
  EXPECT_FALSE(fs::exists(dir / "run"));
}

}  // namespace
}  // namespace longshot
