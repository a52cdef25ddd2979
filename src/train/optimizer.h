// Optimizers over the flat parameter block.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "run/checkpoint.h"
#include "train/shards.h"

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
  // Of all parameters, or of these parts of the block alone: their moments are one behind the other then.
  Optimizer(const OptimizerConfig& config, Parameters& parameters);
  Optimizer(const OptimizerConfig& config, Parameters& parameters, const Shards& shards, int rank);
  static int64_t moments(const OptimizerConfig& config);  // per parameter

  // Clips the gradients to the configured norm, updates, clears the gradients. Returns the norm before clipping.
  // `complete` gets the sums of squares of units, and fills in what other ranks own.
  using Complete = std::function<void(std::span<double> units)>;
  double step(Context& context, double lr, const Complete& complete = {});

  // What a checkpoint keeps: the moments, in the order of the parameters it is of, and the optimizer's own numbers.
  std::vector<NamedBlock> blocks();
  const std::vector<FloatRange>& own() const { return own_; }
  std::map<std::string, double> numbers() const;
  void set_numbers(const std::map<std::string, double>& numbers, const std::string& origin);

 private:
  struct Range {
    int64_t offset, count, moment;  // in the parameters, in the moments
    size_t unit;                    // the first of its units
    bool decay;
  };
  Optimizer(const OptimizerConfig& config, Parameters& parameters, std::vector<NormUnit> units,
            std::vector<FloatRange> own);
  void find_ranges();
  double gradient_norm(Context& context, const Complete& complete);
  OptimizerConfig config_;
  Parameters& parameters_;
  std::vector<NormUnit> units_;  // fixed pieces: the same sums for any number of threads and ranks
  std::vector<FloatRange> own_;
  std::vector<Range> ranges_;        // of them, for threads
  std::vector<double> squares_;      // [units]
  std::span<float> first_, second_;  // moments; the second is empty where the optimizer has none
  int64_t updates_ = 0;
  double last_lr_ = 1.0;
  Workspace memory_;
};

}  // namespace longshot
