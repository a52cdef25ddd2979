// The recipes in configs/ load, fit together, and give the models they are named after.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/adaptive.h"
#include "model/layer.h"
#include "train/trainer.h"

namespace longshot {
namespace {

struct Recipe {
  ModelConfig model;
  TrainConfig train;
  Recipe(const std::string& name, int64_t vocab) {
    Options options;
    model.fields(options);
    train.fields(options);
    options.load_toml(fs::path(LONGSHOT_SOURCE_DIR) / "configs" / (name + ".toml"));
    model.vocab = vocab;
    model.validate();
    train.validate(model.length);
  }
  // Without memory for the values.
  int64_t parameters() const {
    Parameters parameters;
    if (model.is_adaptive()) {
      AdaptiveSoftmax(model, parameters, add_adaptive_bands(model, parameters));
    } else {
      TokenEmbedding(model, parameters);
    }
    for (int64_t i = 0; i < model.layers; ++i) Layer(model, parameters, i);
    if (model.final_norm) NormLayer(parameters, model, "final_norm");
    return parameters.count();
  }
};

TEST(Recipes, WikiText103) {
  const Recipe recipe("wikitext103-paper", 267744);
  EXPECT_EQ(recipe.parameters(), 246933504);
  EXPECT_EQ(recipe.train.optimizer.optimizer, OptimizerKind::kNag);
  const ScheduleConfig& s = recipe.train.schedule;
  EXPECT_NEAR(learning_rate(s, recipe.train.steps, 0), 1e-7, 1e-12);
  EXPECT_NEAR(learning_rate(s, recipe.train.steps, 16000), 1.0, 1e-9);
  EXPECT_NEAR(learning_rate(s, recipe.train.steps, 151000), 0.50005, 1e-9);
  EXPECT_NEAR(learning_rate(s, recipe.train.steps, 286000), 1e-4, 1e-9);
}

TEST(Recipes, Books) { EXPECT_EQ(Recipe("books-paper", 29000).parameters(), 16 * 12596224 + 29000 * 1024); }

TEST(Recipes, Cc100) {
  const int64_t layer = 4 * (2048 * 2048 + 2048) + 2 * 2048 * 8192 + 2048 + 8192 + 4 * 2048;
  EXPECT_EQ(Recipe("cc100-1.3b", 50000).parameters(), 25 * layer + 50000 * 2048 + 2 * 2048);
}

}  // namespace
}  // namespace longshot
