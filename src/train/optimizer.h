// Optimizers over the flat parameter block.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "model/parameters.h"

namespace longshot {

struct OptimizerConfig {
  std::string optimizer = "adamw";
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double momentum = 0.99;
  double weight_decay = 0.1;
  double clip = 1.0;

  void fields(Options& o);
  void validate() const;
};

class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, Parameters& parameters);
  static int64_t moments(const OptimizerConfig& config);  // per parameter

  // Clips the gradients to the configured norm, updates, clears the gradients. Returns the norm before clipping.
  double step(double lr);

  // What resuming needs beside the blocks.
  struct State {
    int64_t updates = 0;
    double last_lr = 1.0;
  };
  State state;
  std::span<float> first() { return first_; }    // moments, shaped like the parameters
  std::span<float> second() { return second_; }  // empty where the optimizer has none

 private:
  struct Range {
    int64_t offset, count;
    bool decay;
  };
  double gradient_norm();
  OptimizerConfig config_;
  Parameters& parameters_;
  std::vector<Range> ranges_;    // fixed pieces: the same sums for any number of threads
  std::vector<double> partial_;  // [ranges]
  std::span<float> first_, second_;
  Workspace memory_;
};

}  // namespace longshot
