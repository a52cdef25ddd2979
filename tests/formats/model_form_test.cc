#include "formats/model_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ModelForm kLinear{.name = "linear",
                        .says = {{"position", {"alibi"}}, {"activation", {"gelu", "gelu-exact"}}, {"tied", {"true"}}},
                        .any = {"norm-epsilon"}};
const ModelForm kTurning{.name = "turning",
                         .says = {{"position", {"rotary"}}, {"rotary-style", {"half"}}, {"norm", {"rmsnorm"}}},
                         .any = {"activation", "tied", "kv-heads", "ffn", "bias"}};

ModelConfig fitting() {
  ModelConfig c;
  c.dim = 24, c.heads = 6, c.vocab = 50;
  c.activation = Activation::kGelu;
  c.embed_scale = false;
  return c;
}

std::vector<std::string> options_of(const std::vector<Misfit>& found) {
  std::vector<std::string> names;
  for (const Misfit& m : found) names.push_back(m.option);
  return names;
}

TEST(ModelForm, WhatDoesNotChangeTheFunctionDoesNotMatter) {
  ModelConfig c = fitting();
  EXPECT_THAT(options_of(misfits(kLinear, c)), IsEmpty());
  c.layers = 7, c.length = 99, c.dropout = 0.1, c.attention_dropout = 0.2, c.activation_dropout = 0.3;
  c.embedding_dropout = 0.1, c.attention_epsilon = 0, c.adaptive_factor = 2, c.adaptive_dropout = 0.5;
  c.norm_epsilon = 1e-6;
  c.set("rotary-style", "half");
  c.set("t5-buckets", "9");
  EXPECT_THAT(options_of(misfits(kLinear, c)), IsEmpty());
}

TEST(ModelForm, ADefaultSpelledOutIsTheDefault) {
  ModelConfig c = fitting();
  c.ffn = 96, c.kv_heads = 6, c.score_scale = 0.5;
  c.set("alibi-slopes", "0.25,0.0625,0.015625,0.00390625,0.5,0.125");
  EXPECT_THAT(options_of(misfits(kLinear, c)), IsEmpty());
  c.ffn = 97, c.kv_heads = 3, c.score_scale = 0.51;
  c.set("alibi-slopes", "0.25,0.0625,0.015625,0.00390625,0.5,0.126");
  const std::vector<Misfit> found = misfits(kLinear, c);
  EXPECT_THAT(options_of(found), ElementsAre("alibi-slopes", "ffn", "kv-heads", "score-scale"));
  EXPECT_THAT(
      misfits_text(kLinear, found),
      "--alibi-slopes is 0.25,0.0625,0.015625,0.00390625,0.5,0.126, linear needs none; --ffn is 97, linear needs "
      "4 * dim; --kv-heads is 3, linear needs as many as heads; --score-scale is 0.51, linear needs 1 / sqrt(dim "
      "/ heads)");
}

// Every option of a model is one that forms name, or is refused where it is not plain: nothing is dropped silently.
TEST(ModelForm, EveryOtherOptionThatIsNotPlainIsRefused) {
  for (const auto& [option, value] : std::map<std::string, std::string>{{"norm", "rmsnorm"},
                                                                        {"norm-position", "post"},
                                                                        {"embedding-norm", "true"},
                                                                        {"final-norm", "false"},
                                                                        {"activation", "relu"},
                                                                        {"bias", "false"},
                                                                        {"tied", "false"},
                                                                        {"embed-scale", "true"},
                                                                        {"parallel-residual", "true"},
                                                                        {"clip-qkv", "6"},
                                                                        {"score-scale", "0.25"},
                                                                        {"kv-heads", "2"},
                                                                        {"ffn", "50"},
                                                                        {"adaptive-cutoffs", "20"},
                                                                        {"document-mask", "true"},
                                                                        {"alibi-learned", "true"},
                                                                        {"alibi-slopes", "1,1,1,1,1,1"}}) {
    ModelConfig c = fitting();
    c.set(option, value);
    EXPECT_THAT(options_of(misfits(kLinear, c)), ElementsAre(option)) << option;
  }
}

TEST(ModelForm, AnotherMethodIsOneMisfitWhateverItsOptions) {
  ModelConfig c = fitting();
  c.position = "rotary";
  c.set("rotary-base", "500");
  EXPECT_THAT(options_of(misfits(kLinear, c)), ElementsAre("position"));
  c.norm = NormKind::kRmsNorm;
  EXPECT_THAT(options_of(misfits(kTurning, c)), ElementsAre("rotary-base", "rotary-style"));
}

TEST(ModelForm, TheFirstThatFitsOrTheNearestIsNamed) {
  const std::vector<ModelForm> forms{kTurning, kLinear};
  ModelConfig c = fitting();
  EXPECT_EQ(fitting_form(forms, c, "", "run").name, "linear");
  EXPECT_EQ(fitting_form(forms, c, "linear", "run").name, "linear");
  const auto refused = [&](const std::string& name) -> std::string {
    try {
      fitting_form(forms, c, name, "run");
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::kUsage);
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(refused("turning"), HasSubstr("--position is alibi, turning needs rotary"));
  EXPECT_THAT(refused("linaer"), HasSubstr("Did you mean 'linear'?"));
  c.embed_scale = true, c.activation = Activation::kRelu;
  EXPECT_THAT(refused(""), HasSubstr("nearest is linear: --activation is relu, linear needs gelu or gelu-exact; "
                                     "--embed-scale is true, linear needs false."));
  EXPECT_THAT(refused(""), Not(HasSubstr("rotary")));
}

}  // namespace
}  // namespace longshot
