#include "train/cost.h"

namespace longshot {

StepCost predict_memory(Context& context, const ModelConfig& config, const TrainConfig& train, int ranks) {
  const BatchPlan plan = Trainer::plan(train, config.length, 0, ranks);
  Transformer model(config, true, Transformer::Memory::kReserved,
                    plan.shared_apart ? SharedGradients::kApart : SharedGradients::kTogether);
  const Parameters& parameters = model.parameters();
  const Shards shards(parameters, ranks);
  const int64_t floats = parameters.end() + plan.sums * parameters.gradient_floats() +
                         Optimizer::moments(train.optimizer) * shards.floats(0);
  return {.parameters = parameters.count(),
          .state_bytes =
              static_cast<size_t>(floats) * sizeof(float) + (ranks > 1 ? ShardExchange::predict_bytes(shards) : 0),
          .activation_bytes =
              TrainingPass::predict_bytes(context, model, Trainer::pass_config(plan, train, config.length))};
}

StepTrial try_step(Context& context, const ModelConfig& config, const TrainConfig& train, const TokenFile& tokens) {
  const auto seconds = [&](int64_t layers) {
    ModelConfig part = config;
    part.layers = layers;
    Transformer model(part, true, Transformer::Memory::kMemory,
                      Trainer::shared_gradients(train, config.length, nullptr));
    model.initialize(context, train.seed);
    return Trainer(context, {model, tokens}, train).seconds_per_step();
  };
  StepTrial trial{.seconds = seconds(1)};
  if (config.layers > 1) trial.seconds += static_cast<double>(config.layers - 1) * (seconds(2) - trial.seconds);
  trial.scratch_bytes = context.scratch(0).size_bytes();
  return trial;
}

}  // namespace longshot
