// The training loop. Knows nothing of evaluation or of a terminal: both come as callbacks.
#pragma once
#include <functional>

#include "data/batches.h"
#include "model/training.h"
#include "run/checkpoint.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace longshot {

struct TrainConfig {
  int64_t steps = 1000;
  int64_t batch_tokens = 8192;
  int64_t micro_batch_tokens = 0;
  uint64_t seed = 1;
  int64_t save_every = 0;
  int64_t eval_every = 0;
  int64_t log_every = 10;
  int64_t keep = 2;
  double max_seconds = 0;
  bool recompute = false;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;

  void fields(Options& o);
  void validate(int64_t length) const;
};

struct StepReport {
  int64_t step = 0, steps = 0;  // updates done, updates in all
  double loss = 0;              // mean over the targets of the last step, nats
  double lr = 0, gradient_norm = 0;
  double tokens_per_second = 0;  // since the report before
  double seconds = 0;            // of training in this run, resumed parts included
  double seconds_left = 0;       // at that speed
  double flops_per_second = 0;
};

struct TrainerCallbacks {
  std::function<void(const StepReport&)> on_step = [](const StepReport&) {};
  std::function<void(const std::string&)> on_note = [](const std::string&) {};
  // Mean loss on the validation data; empty: no validation.
  std::function<double()> validate;
  std::function<bool()> should_stop = [] { return false; };
};

class Trainer {
 public:
  struct Inputs {
    Transformer& model;
    const TokenFile& tokens;
    const Tokenizer* tokenizer;  // travels with the checkpoints
    RunDir run;
  };
  Trainer(Context& context, Inputs inputs, TrainConfig config);

  // Continues from a checkpoint of the run: the last one, or that of `step` where it is positive. Returns the step;
  // 0 when there is none. What metrics.jsonl says of later steps is dropped.
  int64_t resume(int64_t step);

  struct Result {
    int64_t step = 0;
    bool finished = false;  // false: stopped early, and saved
    double loss = 0;        // of the last step
    double valid_loss = 0;  // of the last validation; 0 without one
    double seconds = 0, tokens_per_second = 0;
    size_t peak_memory_bytes = 0;  // of training, earlier processes included
  };
  Result train(const TrainerCallbacks& callbacks);

  // Median time of a few updates, the first left out. They change the model and the optimizer.
  double seconds_per_step();

  static TrainingPass::Config pass_config(const TrainConfig& config, int64_t length);

  int64_t tokens_per_step() const { return sequences_ * inputs_.model.config().length; }

 private:
  double train_step(int64_t step);
  void save(int64_t step);
  void prune();
  void validate(int64_t step, const TrainerCallbacks& callbacks, Result& result);

  Context& context_;
  Inputs inputs_;
  TrainConfig config_;
  int64_t sequences_, micro_sequences_;
  Batches batches_;
  Batch batch_;
  TrainingPass pass_;
  Optimizer optimizer_;
  int64_t start_ = 0;
  int64_t saved_step_ = -1;
  double seconds_ = 0;  // before this process
  size_t peak_memory_ = 0;
  double gradient_norm_ = 0;
};

}  // namespace longshot
