#include "train/cost.h"

#include <gtest/gtest.h>

#include "context.h"
#include "train/support.h"

namespace longshot {
namespace {

TEST(Cost, PredictedMemoryIsWhatIsTaken) {
  for (const bool recompute : {false, true}) {
    for (const auto& [optimizer, precision] :
         {std::pair(OptimizerKind::kAdamW, Precision::kBf16), std::pair(OptimizerKind::kSgd, Precision::kF32)}) {
      const PrecisionScope scope(test_context(), precision);
      const ModelConfig config = small_model("t5");
      TrainConfig train = small_training(1);
      train.recompute = recompute;
      train.optimizer.optimizer = optimizer;
      const StepCost cost = predict_memory(test_context(), config, train);
      const BatchPlan plan = Trainer::plan(train, config.length);
      EXPECT_EQ(plan.sums, 3);  // five sequences in passes of up to two
      Transformer model(config, true, Transformer::Memory::kMemory, SharedGradients::kApart);
      const TrainingPass pass(test_context(), model, Trainer::pass_config(plan, train, config.length));
      EXPECT_EQ(cost.activation_bytes, pass.bytes());
      EXPECT_EQ(cost.parameters, model.parameters().count());
      Optimizer state(train.optimizer, model.parameters());
      auto floats = static_cast<size_t>(cost.parameters + plan.sums * model.parameters().gradient_floats());
      for (const Block& moment : state.blocks()) floats += moment.numbers.size();
      EXPECT_NEAR(static_cast<double>(cost.state_bytes), static_cast<double>(floats * sizeof(float)),
                  0.01 * static_cast<double>(cost.state_bytes));  // tensors begin on cache lines
    }
  }
}

// The scratch of two layers, which a trial sees, is that of all.
TEST(Cost, ATrialSeesTheScratchOfTheWholeModel) {
  ModelConfig config = small_model("t5");
  config.layers = 4;
  const TrainConfig train = small_training(1);
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const TokenSet tokens((dir / "data").string());
  Context trial(2), whole(2);
  const size_t predicted = try_step(trial, config, train, tokens.split("train")).scratch_bytes;
  Transformer model(config, true);
  model.initialize(whole, 1);
  Trainer(whole, {model, tokens.split("train")}, train).seconds_per_step();
  EXPECT_GT(predicted, 0u);
  EXPECT_EQ(predicted, whole.scratch(0).size_bytes());
}

TEST(Cost, AModelLargerThanTheMachineCanBeMeasured) {
  ModelConfig config = small_model();
  config.layers = 100, config.dim = 16384, config.heads = 128;  // 322 billion parameters
  EXPECT_GT(predict_memory(test_context(), config, small_training(1)).bytes(), size_t{4} << 40);
}

}  // namespace
}  // namespace longshot
