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

// Memory of the one of so many ranks that takes most. It follows from the layout alone; address space is reserved for it,
// no memory is taken.
StepCost predict_memory(Context& context, const ModelConfig& config, const TrainConfig& train, int ranks = 1);
// The share of the rank that has most sequences.
BatchPlan busiest_plan(const TrainConfig& train, int64_t length, int ranks);

// Seconds of the parts of a pass, in their order.
struct PassTimes {
  double forward = 0;        // of a layer
  double output = 0;         // both ways, and the embedding's forward
  double last_backward = 0;  // of the last layer, which --recompute does not run again
  double backward = 0;       // of another layer
  double embedding = 0;      // backward

  double until_output(int64_t layers) const { return static_cast<double>(layers) * forward + output; }
  // Until the gradients of so many layers, counted from behind, are complete.
  double until_layers(int64_t layers, int64_t behind) const {
    return until_output(layers) + last_backward + static_cast<double>(behind - 1) * backward;
  }
  double all(int64_t layers) const { return until_layers(layers, layers) + embedding; }
  PassTimes times(double factor) const;
};

struct StepTrial {
  int64_t sequences = 0;     // of the pass that was tried
  PassTimes pass{};          // of it
  double update = 0;         // seconds of the optimizer for a parameter
  size_t scratch_bytes = 0;  // of products and attention, in the context; the same however many layers there are

  // A step of the busiest of so many ranks, without what passes between them.
  double compute_seconds(const Transformer& model, const TrainConfig& train, int ranks) const;
};

// Measured on models of one and of two layers of the same shape, which give the times of all layers. Of a pass that would take
// long a few sequences are tried.
StepTrial try_step(Context& context, const ModelConfig& config, const TrainConfig& train, const TokenFile& tokens);

}  // namespace longshot
