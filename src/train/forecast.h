// How fast several ranks train, told from what this machine computes and what a link carries.
//
// Each rank sends the others' pieces of every bucket of gradients as soon as the last backward pass has completed it, and its
// own piece of the parameters after the update, while the next forward pass begins. A link carries one message behind the
// other, both ways at once.
#pragma once
#include "train/cost.h"

namespace longshot {

struct Link {
  double bytes_per_second = 0;  // of a rank, each way
  double latency = 0;           // seconds until what was sent has arrived
};

// Of a step.
struct StepForecast {
  int64_t bytes_sent = 0;  // by rank 0
  double compute = 0;      // seconds of the rank that has most sequences
  double sending = 0;      // seconds that its link carries something
  double waiting = 0;      // seconds that the rank waits for others
  double alone = 0;        // seconds of the same step on one process
  double seconds() const { return compute + waiting; }
};

// `model` needs no memory; it is made for gradients that are kept apart where there are several ranks.
StepForecast forecast_step(const Transformer& model, const TrainConfig& train, const StepTrial& trial, const Link& link,
                           int ranks);

}  // namespace longshot
