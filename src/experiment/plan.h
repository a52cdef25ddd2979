// An experiment: a list of named variants, each any set of option overrides, trained alike and tested long.
//
//   [variant.steep]
//   position = "alibi"
//   alibi-slopes = [0.5, 0.25, 0.125, 0.0625]
//
// The common grid has a short form: --positions x --train-lengths x --seeds.
#pragma once
#include <string>
#include <vector>

#include "data/token_set.h"
#include "evaluate/evaluation.h"
#include "train/train_config.h"

namespace longshot {

struct ExperimentConfig {
  std::vector<std::string> positions;  // empty: the four of the paper, or none where there are variants
  std::vector<int64_t> train_lengths;  // empty: the model's length
  std::vector<std::string> baseline_positions = {"sinusoidal"};
  std::vector<int64_t> baseline_lengths;
  std::vector<int64_t> seeds = {1};
  std::vector<OptionTable> variants;
  EvaluationConfig test;
  int64_t speed_rounds = 3;  // how often each model's speed is measured, in turn; 0: not
  double equal_time = 0;     // seconds of training for each model instead of steps; 0: equal steps
  ModelConfig model;
  TrainConfig train;
  PositionSettings running;  // the position methods' options of running: for tests, never for training

  void fields(Options& o);
  std::string to_toml() const;  // what makes it this experiment and no other
};

// One model to train and test.
struct ModelPlan {
  std::string name;     // of its directory
  std::string variant;  // what it has in common with its other seeds
  ModelConfig model;
  TrainConfig train;
  PositionSettings running;
  EvaluationPlan tests;
};

// All models, each checked as far as that goes without training: options, the parts' fit, the lengths to be tested.
std::vector<ModelPlan> plan_models(const ExperimentConfig& config, const TokenSet& tokens);

}  // namespace longshot
