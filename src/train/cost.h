// What a training step takes, told before the model is made.
#pragma once
#include "train/trainer.h"

namespace longshot {

struct StepCost {
  int64_t parameters = 0;
  size_t state_bytes = 0;       // weights, gradients, moments, buckets under way
  size_t activation_bytes = 0;  // activations and what passes work on
  size_t bytes() const { return state_bytes + activation_bytes; }
};

// Memory of one of so many ranks. It follows from the layout alone; address space is reserved for it, no memory is taken.
StepCost predict_memory(Context& context, const ModelConfig& config, const TrainConfig& train, int ranks = 1);

struct StepTrial {
  double seconds = 0;        // of a step
  size_t scratch_bytes = 0;  // of products and attention, in the context; the same however many layers there are
};

// Measured on models of one and of two layers of the same shape, and continued to all layers:
//
//   t(n) = t(1) + (n - 1) (t(2) - t(1))
StepTrial try_step(Context& context, const ModelConfig& config, const TrainConfig& train, const TokenFile& tokens);

}  // namespace longshot
