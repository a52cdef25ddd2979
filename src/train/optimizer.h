// Optimizers over the flat parameter block.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "run/checkpoint.h"

namespace longshot {

enum class OptimizerKind { kAdamW, kNag, kSgd };
constexpr Choice<OptimizerKind> kOptimizers[] = {
    {"adamw", OptimizerKind::kAdamW}, {"nag", OptimizerKind::kNag}, {"sgd", OptimizerKind::kSgd}};

struct OptimizerConfig {
  OptimizerKind optimizer = OptimizerKind::kAdamW;
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
  double step(Context& context, double lr);

  // What a checkpoint keeps: the moments, shaped like the parameters, and the optimizer's own numbers.
  std::vector<Block> blocks();
  std::map<std::string, double> numbers() const;
  void set_numbers(const std::map<std::string, double>& numbers, const std::string& origin);

 private:
  struct Range {
    int64_t offset, count;
    bool decay;
  };
  double gradient_norm(Context& context);
  OptimizerConfig config_;
  Parameters& parameters_;
  std::vector<Range> ranges_;        // fixed pieces: the same sums for any number of threads
  std::vector<double> partial_;      // [ranges]
  std::span<float> first_, second_;  // moments; the second is empty where the optimizer has none
  int64_t updates_ = 0;
  double last_lr_ = 1.0;
  Workspace memory_;
};

}  // namespace longshot
