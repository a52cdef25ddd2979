// Where training starts: weights by seed and name, a loss of ln V.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "model/support.h"

namespace longshot {
namespace {

TEST(InitialWeights, WhatModelsHaveInCommonStartsEqual) {
  const ModelConfig c = tiny_config("none");
  Transformer plain(c, false);
  plain.initialize(test_context(), 7);
  for (const std::string& name : position_names()) {
    ModelConfig other = tiny_config(name);
    other.layers = 3;  // more of them, in between
    Transformer model(other, false);
    model.initialize(test_context(), 7);
    size_t shared = 0;
    for (size_t i = 0; i < plain.parameters().tensors().size(); ++i) {
      for (size_t j = 0; j < model.parameters().tensors().size(); ++j) {
        const Tensor &a = plain.parameters().tensors()[i], &b = model.parameters().tensors()[j];
        if (a.name != b.name) continue;
        ++shared;
        // The ends of branches start smaller in deeper models.
        const bool scaled = a.name.ends_with("attention.out.weight") || a.name.ends_with("ffn.out.weight");
        for (int64_t k = 0; k < a.size; ++k) {
          const auto at = static_cast<size_t>(k);
          const float x = plain.parameters().value(i)[at], y = model.parameters().value(j)[at];
          if (scaled) {
            ASSERT_NEAR(x * std::sqrt(2.0f), y * std::sqrt(3.0f), 1e-6) << name << ": " << a.name;
          } else {
            ASSERT_EQ(x, y) << name << ": " << a.name;
          }
        }
      }
    }
    EXPECT_EQ(shared, plain.parameters().tensors().size()) << name;
  }
}

TEST(InitialWeights, DifferBySeedAndByName) {
  Transformer one(tiny_config(), false), two(tiny_config(), false);
  one.initialize(test_context(), 1);
  two.initialize(test_context(), 2);
  const auto first = [](Transformer& model, const std::string& name) {
    for (size_t i = 0; i < model.parameters().tensors().size(); ++i) {
      if (model.parameters().tensors()[i].name == name) return model.parameters().value(i)[0];
    }
    ADD_FAILURE() << name;
    return 0.0f;
  };
  EXPECT_NE(first(one, "embed.weight"), first(two, "embed.weight"));
  EXPECT_NE(first(one, "layers.0.attention.qkv.weight"), first(one, "layers.1.attention.qkv.weight"));
}

// Mean loss of a fresh model over random targets, which nothing can predict.
double first_loss(const ModelConfig& config) {
  Transformer model(config, false);
  model.initialize(test_context(), 1);
  const int64_t length = std::min<int64_t>(config.length, 64), sequences = 1024 / length;
  const RandomBatch data(sequences, length, config.vocab);
  Inference inference(test_context(), model, {.sequences = sequences, .tokens = length});
  std::vector<float> losses(data.targets.size());
  inference.score({.inputs = data.inputs, .length = length, .first_key = {}}, data.targets, 0, losses);
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
}

void expect_even_start(const ModelConfig& config, const std::string& what) {
  const double even = std::log(static_cast<double>(config.vocab));
  EXPECT_NEAR(first_loss(config), even, 0.02 * even) << what;
}

TEST(FirstLoss, IsThatOfAnEvenGuessWhateverTheOptions) {
  for (const std::string& position : position_names()) {
    for (const bool tied : {true, false}) {
      for (const bool final_norm : {true, false}) {
        for (const bool embed_scale : {true, false}) {
          for (const auto& [place, norm_position] : kNormPositions) {
            ModelConfig c;
            c.position = position, c.vocab = 256, c.dim = 128, c.length = 64;
            c.tied = tied, c.final_norm = final_norm, c.embed_scale = embed_scale, c.norm_position = norm_position;
            expect_even_start(c, fmt::format("{}, {}, tied {}, final norm {}, embed scale {}", position, place, tied,
                                             final_norm, embed_scale));
          }
        }
      }
    }
  }
}

// Tied, the input's own vector is in the residual stream, and its token's logit must not stand out for it.
TEST(FirstLoss, ATiedOutputDoesNotBeginByPredictingItsInput) {
  for (const auto& [name, norm] : kNormKinds) {
    ModelConfig c;
    c.vocab = 256, c.dim = 128, c.length = 64, c.norm = norm;
    Transformer model(c, false);
    model.initialize(test_context(), 1);
    const RandomBatch data(4, c.length, c.vocab);
    Inference inference(test_context(), model, {.sequences = 4, .tokens = c.length});
    std::vector<float> losses(data.inputs.size());
    inference.score({.inputs = data.inputs, .length = c.length, .first_key = {}}, data.inputs, 0, losses);
    const double own = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
    EXPECT_NEAR(own, std::log(256.0), 0.2) << name;
  }
}

// The lines of a recipe that set one of these options; others are of training and comparing.
std::string lines_of(const Options& options, const std::string& recipe) {
  std::string kept;
  std::istringstream lines(recipe);
  for (std::string line; std::getline(lines, line);) {
    const std::string key = line.substr(0, line.find(' '));
    const auto known = [&](const Option& o) { return o.name == key; };
    if (std::any_of(options.all().begin(), options.all().end(), known)) kept += line + "\n";
  }
  return kept;
}

// The recipes' own shapes, as many layers and tokens as a test has time for.
TEST(FirstLoss, IsThatOfAnEvenGuessInEveryPlainRecipe) {
  int recipes = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(LONGSHOT_SOURCE_DIR) / "configs")) {
    ModelConfig c;
    Options options;
    c.fields(options);
    options.load_toml_text(lines_of(options, read_text(entry.path())), entry.path());
    if (c.is_adaptive()) continue;
    c.vocab = 512, c.layers = std::min<int64_t>(c.layers, c.dim > 512 ? 1 : 4);
    c.dropout = c.attention_dropout = c.activation_dropout = c.embedding_dropout = 0;
    for (const std::string& position : position_names()) {
      if (c.dim > 512 && position != c.position) continue;  // gigabytes of weights
      c.position = position;
      expect_even_start(c, entry.path().filename().string() + ", " + position);
    }
    ++recipes;
  }
  EXPECT_GE(recipes, 5);
}

// As docs/model.md has it: words of the first band are read, and those of each band come next. The number of blocks changes little.
TEST(FirstLoss, OfTheAdaptiveRecipeByBandOfTheTarget) {
  ModelConfig c;
  Options options;
  c.fields(options);
  const fs::path recipe = fs::path(LONGSHOT_SOURCE_DIR) / "configs/wikitext103-paper.toml";
  options.load_toml_text(lines_of(options, read_text(recipe)), recipe);
  c.layers = 1, c.vocab = 267744;
  c.dropout = c.attention_dropout = c.activation_dropout = c.embedding_dropout = c.adaptive_dropout = 0;
  Transformer model(c, false);
  model.initialize(test_context(), 1);
  const int64_t length = 128, ends[] = {c.adaptive_cutoffs[0], c.adaptive_cutoffs[1], c.vocab};
  const double expected[] = {10.5, 20.8, 23.7};
  const std::vector<int32_t> inputs = RandomBatch(1, length, ends[0]).inputs;
  int64_t begin = 0;
  for (size_t band = 0; band < std::size(ends); ++band) {
    RandomBatch data(1, length, ends[band] - begin);
    for (int32_t& id : data.targets) id += static_cast<int32_t>(begin);
    Inference inference(test_context(), model, {.sequences = 1, .tokens = length});
    std::vector<float> losses(data.targets.size());
    inference.score({.inputs = inputs, .length = length, .first_key = {}}, data.targets, 0, losses);
    const double mean = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
    EXPECT_NEAR(mean, expected[band], 0.05 * expected[band]) << "band " << band;
    begin = ends[band];
  }
}

}  // namespace
}  // namespace longshot
