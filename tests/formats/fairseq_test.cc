#include "formats/fairseq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "formats/torch_builder.h"
#include "references.h"

namespace longshot {
namespace {

using namespace build;
using testing::ElementsAre;
using testing::HasSubstr;

// A checkpoint in the making: options and tensors by fairseq's names, each to be changed by a test.
struct Draft {
  std::map<std::string, std::string> options;  // name -> pickled value
  struct Data {
    Shape shape;
    std::vector<float> values;
  };
  std::map<std::string, Data> tensors;
  std::map<std::string, Shape> shared;  // all from the front of one storage, which is called "shared"
  bool repeated = false;                // .. or all of its first element, by strides of 0
  bool old_style = false;               // options in args, an argparse.Namespace
  bool half = false;
  int64_t updates = 600;

  void add(const std::string& name, const Shape& shape, float first) {
    std::vector<float> values(static_cast<size_t>(*element_count(shape)));
    std::iota(values.begin(), values.end(), first);
    tensors[name] = {shape, values};
  }

  std::string file() const {
    std::vector<std::pair<std::string, std::string>> option_items(options.begin(), options.end()), model;
    Storages storages;
    for (const auto& [name, data] : tensors) {
      const std::string key = std::to_string(storages.size());
      std::vector<int64_t> strides(data.shape.size(), 1);
      for (size_t d = data.shape.size(); d-- > 1;) strides[d - 1] = strides[d] * data.shape[d];
      const auto count = static_cast<int64_t>(data.values.size());
      model.emplace_back(name,
                         tensor(storage(half ? "HalfStorage" : "FloatStorage", key, count), 0, data.shape, strides));
      std::string bytes;
      for (const float v : data.values) bytes += half ? half_bytes(v) : little_endian(v);
      storages.emplace_back(key, bytes);
    }
    int64_t most = 0;
    for (const auto& [name, shape] : shared) most = std::max(most, *element_count(shape));
    for (const auto& [name, shape] : shared) {
      std::vector<int64_t> strides(shape.size(), repeated ? 0 : 1);
      for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
      model.emplace_back(name, tensor(storage("FloatStorage", "shared", most), 0, shape, strides));
    }
    if (most > 0) storages.emplace_back("shared", std::string(static_cast<size_t>(most) * 4, '\0'));
    const std::string history = list({dict({{"num_updates", number(updates)}})});
    const std::string args = call(global("argparse", "Namespace"), {}) + dict(option_items) + "b";
    const std::string cfg = dict({{"model", dict(option_items)}, {"task", dict({{"tokens_per_sample", number(32)}})}});
    return torch_zip(dict({{"args", old_style ? args : none()},
                           {"cfg", old_style ? none() : cfg},
                           {"model", dict(model)},
                           {"optimizer_history", history}}),
                     storages);
  }

  static std::string half_bytes(float v) {  // whole numbers from 0 to 2048 only
    if (v == 0) return little_endian(uint16_t{0});
    const int exponent = std::ilogb(v);
    const auto fraction = static_cast<uint16_t>((v / std::ldexp(1.0f, exponent) - 1) * 1024);
    return little_endian(static_cast<uint16_t>((exponent + 15) << 10 | fraction));
  }
};

// dim 8, ffn 12, 2 heads
Draft plain_draft() {
  Draft d;
  d.options = {{"_name", text("transformer_lm")},
               {"decoder_layers", number(1)},
               {"decoder_embed_dim", number(8)},
               {"decoder_attention_heads", number(2)},
               {"decoder_ffn_embed_dim", number(12)},
               {"dropout", real(0.25)},
               {"attention_dropout", real(0.125)},
               {"relu_dropout", real(0.5)},
               {"activation_dropout", real(0.0)},
               {"activation_fn", text("gelu")},
               {"share_decoder_input_output_embed", boolean(true)}};
  d.add("decoder.version", {1}, 3);
  d.add("decoder.embed_positions._float_tensor", {1}, 0);
  d.add("decoder.embed_tokens.weight", {10, 8}, 0);
  d.add("decoder.output_projection.weight", {10, 8}, 0);
  d.add("decoder.layer_norm.weight", {8}, 1);
  d.add("decoder.layer_norm.bias", {8}, 2);
  const std::string layer = "decoder.layers.0.";
  for (const std::string norm : {"self_attn_layer_norm", "final_layer_norm"}) {
    d.add(layer + norm + ".weight", {8}, 1);
    d.add(layer + norm + ".bias", {8}, 1);
  }
  float first = 100;
  for (const std::string p : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
    d.add(layer + "self_attn." + p + ".weight", {8, 8}, first);
    d.add(layer + "self_attn." + p + ".bias", {8}, first + 50);
    first += 100;
  }
  d.add(layer + "fc1.weight", {12, 8}, 5);
  d.add(layer + "fc1.bias", {12}, 6);
  d.add(layer + "fc2.weight", {8, 12}, 7);
  d.add(layer + "fc2.bias", {8}, 8);
  return d;
}

// bands 0..3, 4..6, 7..9 with vectors of 8, 4 and 2 elements
Draft adaptive_draft() {
  Draft d = plain_draft();
  for (const std::string name : {"decoder.embed_tokens.weight", "decoder.output_projection.weight",
                                 "decoder.layer_norm.weight", "decoder.layer_norm.bias"}) {
    d.tensors.erase(name);
  }
  d.options["share_decoder_input_output_embed"] = boolean(false);
  for (const std::string option :
       {"adaptive_input", "tie_adaptive_weights", "tie_adaptive_proj", "no_decoder_final_norm"}) {
    d.options[option] = boolean(true);
  }
  d.options["adaptive_input_cutoff"] = d.options["adaptive_softmax_cutoff"] = text("4,7");
  d.options["adaptive_input_factor"] = d.options["adaptive_softmax_factor"] = real(2);
  d.options["adaptive_softmax_dropout"] = real(0.0625);
  const std::string input = "decoder.embed_tokens.embeddings.", softmax = "decoder.adaptive_softmax.";
  d.add(softmax + "version", {1}, 1);
  d.add("decoder.embed_tokens._float_tensor", {1}, 0);
  d.add(softmax + "head._float_tensor", {1}, 0);
  d.add(input + "0.0.weight", {4, 8}, 10);
  d.add(input + "0.1.weight", {8, 8}, 20);
  d.add(input + "1.0.weight", {3, 4}, 30);
  d.add(input + "1.1.weight", {8, 4}, 40);
  d.add(input + "2.0.weight", {3, 2}, 50);
  d.add(input + "2.1.weight", {8, 2}, 60);
  d.add(softmax + "head.word_proj.weight", {4, 8}, 10);
  d.add(softmax + "head.class_proj.weight", {2, 8}, 70);
  d.add(softmax + "tail.0.0.weight", {8, 4}, 40);
  d.add(softmax + "tail.0.2.weight", {3, 4}, 30);
  d.add(softmax + "tail.1.0.weight", {8, 2}, 60);
  d.add(softmax + "tail.1.2.weight", {3, 2}, 50);
  return d;
}

struct Opened {
  explicit Opened(const Draft& draft) : memory(draft.file()), file(memory.path()), checkpoint(file) {}
  const FairseqTensor& at(std::string_view name) const {
    for (const FairseqTensor& t : checkpoint.tensors()) {
      if (t.name == name) return t;
    }
    throw std::out_of_range(std::string(name));
  }
  std::vector<float> values(std::string_view name) const {
    std::vector<float> out(static_cast<size_t>(*element_count(at(name).shape)));
    copy_to_float(at(name), out);
    return out;
  }
  MemoryFile memory;
  TorchFile file;
  FairseqCheckpoint checkpoint;
};

std::string refusal(const Draft& draft) {
  return error_of([&] { Opened(draft).checkpoint.verify(); });
}

TEST(Fairseq, PlainModel) {
  const Opened o(plain_draft());
  const FairseqConfig& c = o.checkpoint.config();
  EXPECT_EQ(c.architecture, "transformer_lm");
  EXPECT_EQ(c.layers, 1);
  EXPECT_EQ(c.dim, 8);
  EXPECT_EQ(c.heads, 2);
  EXPECT_EQ(c.ffn, 12);
  EXPECT_EQ(c.vocab, 10);
  EXPECT_EQ(c.length, 32);
  EXPECT_EQ(c.updates, 600);
  EXPECT_EQ(c.activation, "gelu");
  EXPECT_EQ(c.dropout, 0.25);
  EXPECT_EQ(c.attention_dropout, 0.125);
  EXPECT_EQ(c.activation_dropout, 0.5);  // from relu_dropout
  EXPECT_TRUE(c.tied && c.final_norm && c.embed_scale);
  EXPECT_FALSE(c.is_adaptive());
  o.checkpoint.verify();

  EXPECT_EQ(o.at("embed.weight").shape, Shape({10, 8}));
  EXPECT_EQ(o.at("layers.0.attention.qkv.weight").shape, Shape({24, 8}));
  const auto qkv = o.values("layers.0.attention.qkv.weight");
  EXPECT_EQ(qkv[0], 100);
  EXPECT_EQ(qkv[64], 200);
  EXPECT_EQ(qkv[128], 300);
  EXPECT_EQ(qkv[191], 363);
  EXPECT_EQ(o.values("layers.0.attention.qkv.bias")[8], 250);
  EXPECT_EQ(o.values("layers.0.attention.out.weight")[0], 400);
  EXPECT_EQ(o.values("layers.0.ffn.in.bias")[11], 17);
  EXPECT_EQ(o.at("layers.0.ffn.out.weight").shape, Shape({8, 12}));
  EXPECT_EQ(o.values("final_norm.bias")[0], 2);
  EXPECT_THROW(o.at("output.weight"), std::out_of_range);
  EXPECT_EQ(o.checkpoint.parameter_count(), 80 + 16 + 32 + 4 * 72 + 2 * 96 + 20);
}

TEST(Fairseq, UntiedOutputUnderBothOfItsNames) {
  Draft d = plain_draft();
  d.options["share_decoder_input_output_embed"] = boolean(false);
  d.add("decoder.output_projection.weight", {10, 8}, 77);
  EXPECT_EQ(Opened(d).values("output.weight")[0], 77);
  d.tensors["decoder.embed_out"] = d.tensors["decoder.output_projection.weight"];
  d.tensors.erase("decoder.output_projection.weight");
  EXPECT_EQ(Opened(d).values("output.weight")[0], 77);
}

TEST(Fairseq, AdaptiveModel) {
  const Opened o(adaptive_draft());
  const FairseqConfig& c = o.checkpoint.config();
  EXPECT_THAT(c.cutoffs, ElementsAre(4, 7));
  EXPECT_EQ(c.vocab, 10);
  EXPECT_EQ(c.adaptive_factor, 2);
  EXPECT_EQ(c.adaptive_dropout, 0.0625);
  EXPECT_FALSE(c.final_norm);
  EXPECT_EQ(c.band_dim(2), 2);
  o.checkpoint.verify();
  EXPECT_EQ(o.at("embed.band1.weight").shape, Shape({3, 4}));
  EXPECT_EQ(o.values("embed.band2.projection")[0], 60);
  EXPECT_EQ(o.at("output.clusters").shape, Shape({2, 8}));
  EXPECT_EQ(o.values("output.clusters")[0], 70);
}

TEST(Fairseq, OldFiles) {
  Draft d = adaptive_draft();
  d.old_style = true;
  d.half = true;
  d.options["arch"] = d.options["_name"];
  d.options.erase("_name");
  d.options["tokens_per_sample"] = number(64);
  const auto rename = [&](const std::string& from, const std::string& to) {
    auto node = d.tensors.extract(from);
    node.key() = to;
    d.tensors.insert(std::move(node));
  };
  const std::string layer = "decoder.layers.0.";
  for (const std::string part : {".weight", ".bias"}) {
    rename(layer + "self_attn_layer_norm" + part, layer + "layer_norms.0" + part);
    rename(layer + "final_layer_norm" + part, layer + "layer_norms.2" + part);
    for (const std::string p : {"q_proj", "k_proj", "v_proj"}) d.tensors.erase(layer + "self_attn." + p + part);
  }
  d.add(layer + "self_attn.in_proj_weight", {24, 8}, 500);
  d.add(layer + "self_attn.in_proj_bias", {24}, 900);
  d.add("decoder.embed_positions.weights", {4, 8}, 0);
  const Opened o(d);
  o.checkpoint.verify();
  EXPECT_EQ(o.checkpoint.config().architecture, "transformer_lm");
  EXPECT_EQ(o.checkpoint.config().length, 64);
  EXPECT_EQ(o.values("layers.0.attention.qkv.weight")[191], 691);
  EXPECT_EQ(o.values("layers.0.attention_norm.weight")[0], 1);
}

TEST(Fairseq, DecoderVersionTwoHasNoFinalNorm) {
  Draft d = plain_draft();
  d.tensors["decoder.version"].values = {2};
  EXPECT_THAT(refusal(d), HasSubstr("decoder.layer_norm.bias"));
  d.tensors.erase("decoder.layer_norm.weight");
  d.tensors.erase("decoder.layer_norm.bias");
  EXPECT_FALSE(Opened(d).checkpoint.config().final_norm);
  d.tensors.erase("decoder.version");
  EXPECT_FALSE(Opened(d).checkpoint.config().final_norm);
}

TEST(Fairseq, TiesThatDifferAreRefused) {
  for (const std::string name :
       {"head.word_proj.weight", "tail.0.0.weight", "tail.0.2.weight", "tail.1.0.weight", "tail.1.2.weight"}) {
    Draft d = adaptive_draft();
    d.tensors["decoder.adaptive_softmax." + name].values.back() += 1;
    EXPECT_THAT(refusal(d), HasSubstr(name));
  }
  Draft d = plain_draft();
  d.tensors["decoder.output_projection.weight"].values[3] = -1;
  EXPECT_THAT(refusal(d), HasSubstr("should be one tensor"));
}

TEST(Fairseq, ValuesThatAreNotFiniteAreRefused) {
  for (const float value : {NAN, INFINITY, -INFINITY}) {
    Draft d = plain_draft();
    d.tensors["decoder.layers.0.self_attn.k_proj.bias"].values[3] = value;
    const Opened opened(d);
    EXPECT_THAT(error_of([&] { opened.values("layers.0.attention.qkv.bias"); }),
                HasSubstr(fmt::format("layers.0.attention.qkv.bias: element 11 is {}", value)));
  }
}

// Many layers whose tensors are one element repeated, or one storage shared by all of them.
TEST(Fairseq, TensorsMayNotHaveMoreBytesThanTheFile) {
  constexpr int kLayers = 40;
  for (const bool repeated : {true, false}) {
    Draft d = plain_draft();
    d.options["decoder_layers"] = number(kLayers);
    for (auto& [name, value] : std::map<std::string, Draft::Data>(d.tensors)) {
      const std::string front = "decoder.layers.0.";
      if (!name.starts_with(front)) continue;
      for (int i = 0; i < kLayers; ++i) {
        d.shared[fmt::format("decoder.layers.{}.{}", i, name.substr(front.size()))] = value.shape;
      }
      d.tensors.erase(name);
    }
    d.repeated = repeated;
    d.options["decoder_ffn_embed_dim"] = number(4000);
    for (int i = 0; i < kLayers; ++i) {
      d.shared[fmt::format("decoder.layers.{}.fc1.weight", i)] = {4000, 8};
      d.shared[fmt::format("decoder.layers.{}.fc1.bias", i)] = {4000};
      d.shared[fmt::format("decoder.layers.{}.fc2.weight", i)] = {8, 4000};
    }
    EXPECT_THAT(refusal(d), HasSubstr("they repeat what it holds")) << repeated;
  }
}

TEST(Fairseq, TensorsThatDoNotFitAreRefused) {
  Draft d = plain_draft();
  d.add("decoder.layers.0.fc1.weight", {8, 12}, 0);
  EXPECT_THAT(refusal(d), HasSubstr("[8, 12], but the configuration asks for [12, 8]"));
  d = plain_draft();
  d.tensors.erase("decoder.layers.0.self_attn.k_proj.bias");
  EXPECT_THAT(refusal(d), HasSubstr("k_proj.bias"));
  d = plain_draft();
  d.add("decoder.layers.1.fc1.weight", {12, 8}, 0);
  EXPECT_THAT(refusal(d), HasSubstr("decoder.layers.1.fc1.weight"));
  d = plain_draft();
  d.options["decoder_layers"] = number(2);
  EXPECT_THAT(refusal(d), HasSubstr("decoder.layers.1."));
  d = plain_draft();
  d.tensors.erase("decoder.embed_tokens.weight");
  EXPECT_THAT(refusal(d), HasSubstr("embed_tokens"));
  d = adaptive_draft();
  d.tensors.erase("decoder.adaptive_softmax.version");
  EXPECT_THAT(refusal(d), HasSubstr("no longer reads"));
}

TEST(Fairseq, ConfigurationsItCannotHaveAreRefused) {
  const auto with = [](Draft d, const std::string& option, const std::string& value) {
    d.options[option] = value;
    return refusal(d);
  };
  const Draft plain = plain_draft(), adaptive = adaptive_draft();
  EXPECT_THAT(with(plain, "decoder_learned_pos", boolean(true)), HasSubstr("decoder_learned_pos"));
  EXPECT_THAT(with(plain, "character_embeddings", boolean(true)), HasSubstr("character_embeddings"));
  EXPECT_THAT(with(plain, "layernorm_embedding", boolean(true)), HasSubstr("layernorm_embedding"));
  EXPECT_THAT(with(plain, "base_layers", number(1)), HasSubstr("base_layers"));
  EXPECT_THAT(with(plain, "decoder_input_dim", number(4)), HasSubstr("decoder_input_dim is 4"));
  EXPECT_THAT(with(plain, "decoder_attention_heads", number(3)), HasSubstr("3 heads"));
  EXPECT_THAT(with(plain, "decoder_embed_dim", number(0)), HasSubstr("decoder_embed_dim"));
  EXPECT_THAT(with(plain, "decoder_layers", number(-4)), HasSubstr("decoder_layers"));
  EXPECT_THAT(with(plain, "decoder_layers", number(int64_t{1} << 40)), HasSubstr("decoder_layers"));
  EXPECT_THAT(with(plain, "decoder_layers", text("6")), HasSubstr("decoder_layers"));
  EXPECT_THAT(with(plain, "decoder_layers", none()), HasSubstr("lacks decoder_layers"));
  EXPECT_THAT(with(plain, "dropout", real(1.5)), HasSubstr("dropout is 1.5"));
  EXPECT_THAT(with(plain, "dropout", text("x")), HasSubstr("dropout is not a number"));
  EXPECT_THAT(with(plain, "no_scale_embedding", text("x")), HasSubstr("neither true nor false"));
  EXPECT_THAT(with(adaptive, "tie_adaptive_proj", boolean(false)), HasSubstr("tie_adaptive_proj false"));
  EXPECT_THAT(with(adaptive, "tie_adaptive_weights", boolean(false)), HasSubstr("tie_adaptive_weights false"));
  EXPECT_THAT(with(adaptive, "adaptive_input_cutoff", text("4,8")), HasSubstr("[4, 8]"));
  EXPECT_THAT(with(adaptive, "adaptive_input_cutoff", text("4,x")), HasSubstr("ascending"));
  EXPECT_THAT(with(adaptive, "adaptive_input_cutoff", text("7,4")), HasSubstr("ascending"));
  EXPECT_THAT(with(adaptive, "adaptive_softmax_factor", real(4)), HasSubstr("factors"));
  Draft never = plain;
  never.updates = -5;
  EXPECT_THAT(refusal(never), HasSubstr("num_updates is -5"));
  Draft tiny = adaptive;
  tiny.options["adaptive_input_factor"] = tiny.options["adaptive_softmax_factor"] = real(64);
  EXPECT_THAT(refusal(tiny), HasSubstr("no elements"));
}

TEST(Fairseq, OtherFilesAreToldApart) {
  const MemoryFile memory(torch_zip(dict({{"model", dict({})}})));
  const TorchFile file(memory.path());
  EXPECT_FALSE(FairseqCheckpoint::is_one(file));
  EXPECT_THAT(error_of([&] { FairseqCheckpoint{file}; }), HasSubstr("neither a cfg"));
  const MemoryFile good(plain_draft().file());
  EXPECT_TRUE(FairseqCheckpoint::is_one(TorchFile(good.path())));
}

TEST(Fairseq, ReferenceCheckpoints) {
  struct Case {
    fs::path file;
    int64_t first_cutoff, second_cutoff, vocab, length, updates, parameters;  // the last as the reference counts them
    double adaptive_dropout;
  };
  std::vector<Case> cases;
  for (const char* name : {"alibi.pt", "sinusoidal.pt", "alibi-old.pt"})
    cases.push_back({kFixtures / "checkpoints" / name, 60, 180, 328, 32, 150, 14568, 0.2});
  for (const char* name : {"alibi_L64_h8_d128.pt", "sin_L64_h8_d128.pt"}) {
    for (const Case& c :
         if_large<Case>({{kLargeReference / "checkpoints" / name, 2000, 8000, 26912, 64, 600, 1414144, 0.1}}))
      cases.push_back(c);
  }
  for (const Case& want : cases) {
    SCOPED_TRACE(want.file);
    const TorchFile file(want.file);
    const FairseqCheckpoint checkpoint(file);
    checkpoint.verify();
    const FairseqConfig& c = checkpoint.config();
    EXPECT_EQ(c.architecture, "transformer_lm_wiki103");
    EXPECT_THAT(c.cutoffs, ElementsAre(want.first_cutoff, want.second_cutoff));
    EXPECT_EQ(c.vocab, want.vocab);
    EXPECT_EQ(c.length, want.length);
    EXPECT_EQ(c.updates, want.updates);
    EXPECT_EQ(c.activation, "relu");
    EXPECT_EQ(c.adaptive_dropout, want.adaptive_dropout);
    EXPECT_EQ(checkpoint.parameter_count(), want.parameters);
  }
}

}  // namespace
}  // namespace longshot
