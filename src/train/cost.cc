#include "train/cost.h"

namespace longshot {

StepCost predict_memory(Context& context, const ModelConfig& config, const TrainConfig& train) {
  Transformer model(config, true, Transformer::Memory::kReserved);
  const int64_t copies = 2 + Optimizer::moments(train.optimizer);
  return {.parameters = model.parameters().count(),
          .state_bytes = static_cast<size_t>(model.parameters().count() * copies) * sizeof(float),
          .activation_bytes = TrainingPass::predict_bytes(context, model, Trainer::pass_config(train, config.length))};
}

StepTrial try_step(Context& context, const ModelConfig& config, const TrainConfig& train, const TokenFile& tokens) {
  const auto seconds = [&](int64_t layers) {
    ModelConfig part = config;
    part.layers = layers;
    Transformer model(part, true);
    model.initialize(context, train.seed);
    return Trainer(context, {model, tokens}, train).seconds_per_step();
  };
  StepTrial trial{.seconds = seconds(1)};
  if (config.layers > 1) trial.seconds += static_cast<double>(config.layers - 1) * (seconds(2) - trial.seconds);
  trial.scratch_bytes = context.scratch(0).size_bytes();
  return trial;
}

}  // namespace longshot
