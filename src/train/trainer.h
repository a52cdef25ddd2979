// The training loop. Knows nothing of evaluation or of a terminal: both come as callbacks.
#pragma once
#include <functional>
#include <optional>

#include "data/batches.h"
#include "model/training.h"
#include "run/run_writer.h"
#include "train/batch_plan.h"
#include "train/exchange.h"
#include "train/moments.h"
#include "train/train_config.h"

namespace longshot {

struct StepReport {
  MetricsRecord metrics;    // as written to metrics.jsonl
  int64_t steps = 0;        // updates in all
  double seconds_left = 0;  // at the present speed
  double flops_per_second = 0;
};

struct TrainerCallbacks {
  std::function<void(const StepReport&)> on_step = [](const StepReport&) {};
  std::function<void(const std::string&)> on_note = [](const std::string&) {};
  // Mean loss on the validation data, in windows of `length`, or nothing when it was asked to stop; empty: no validation.
  std::function<std::optional<double>(int64_t length)> validate;
  std::function<bool()> should_stop = [] { return false; };
};

struct TrainResult {
  int64_t step = 0;
  bool finished = false;  // false: stopped early, and saved
  int64_t updates = 0;    // of this process; 0 and finished: there was nothing left to do
  OptionalNumber loss;    // of the last step
  OptionalNumber valid_loss;
  double seconds = 0, tokens_per_second = 0;
  size_t peak_memory_bytes = 0;  // of training, earlier processes included
};

class Trainer {
 public:
  struct Inputs {
    Transformer& model;
    const TokenFile& tokens;
    const Tokenizer* tokenizer = nullptr;  // travels with the checkpoints
    std::optional<Origin> from{};          // where the model's weights come from, if not from initialize()
    Communicator* world = nullptr;         // those who train it together; null: this process alone
  };
  // `config` must be validated, and the model made for shared_gradients().
  Trainer(Context& context, Inputs inputs, TrainConfig config);
  static SharedGradients shared_gradients(const TrainConfig& config, int64_t length, const Communicator* world);

  // The model, the optimizer and the clock as they were when the checkpoint was saved. On one process alone.
  void restore(const fs::path& checkpoint, const CheckpointInfo& info, const Watch& watch = {});
  // All ranks begin where rank 0 stands: with its weights, or those of a checkpoint that rank 0 has, and the moments.
  struct Start {
    fs::path checkpoint;
    const CheckpointInfo* info = nullptr;  // on rank 0; null: a new run
    Watch watch{};                         // of reading it
  };
  void begin_together(const Start& start);

  // Trains from where the model stands to the end, or until asked to stop; saves either way. `run` stands at the same
  // step; it is rank 0's, the others have none.
  TrainResult train(RunWriter* run, const TrainerCallbacks& callbacks);

  // Median time of a few updates, the first left out. They change the model and the optimizer.
  double seconds_per_step();

  // Of one rank's passes.
  static BatchPlan plan(const TrainConfig& config, int64_t length, int rank = 0, int ranks = 1);
  static TrainingPass::Config pass_config(const BatchPlan& plan, const TrainConfig& config, int64_t length);

  int64_t tokens_per_step() const { return sequences_ * inputs_.model.config().length; }
  // Whether the sums have the bits that other numbers of ranks give.
  bool sums_as_one() const { return plan_.same_bits || is_alone(); }

 private:
  class Clock;
  bool is_alone() const { return ranks_ == 1; }
  bool is_root() const { return rank_ == 0; }
  bool at_end() const;
  bool every(int64_t steps) const { return steps > 0 && step_ % steps == 0; }
  double train_step(int64_t step);
  void finish_step();
  double run_passes(int64_t step);
  TrainingBatch batch_of(const GroupPiece& pass);
  void complete(const GroupPiece& pass, FloatRange range, int top, bool last);
  std::span<float> block(int i);
  void advance();
  StepReport report(Clock& clock) const;
  void save(RunWriter* run);
  bool validate(RunWriter* run, const TrainerCallbacks& callbacks);
  bool any(bool here);
  double of_root(double here);
  double sum_of_ranks(double here);
  TrainResult result(const RunWriter* run, int64_t first, bool stopped) const;

  Context& context_;
  Inputs inputs_;
  TrainConfig config_;
  int64_t sequences_;
  int rank_, ranks_;
  BatchPlan plan_;
  Batches batches_;
  Batch batch_;
  TrainingPass pass_;
  Shards shards_;
  Optimizer optimizer_;
  std::optional<ShardExchange> exchange_;  // with others alone
  std::optional<SharedMoments> moments_;
  Workspace memory_;
  std::vector<std::span<float>> sums_;  // blocks of gradients, the first is the parameters' own
  int64_t step_ = 0;                    // updates done
  std::optional<int64_t> saved_step_;   // of the last checkpoint
  double seconds_ = 0;                  // of training so far
  size_t peak_memory_ = 0;
  std::string data_hash_;
  double loss_ = 0, gradient_norm_ = 0;  // of the last step
};

}  // namespace longshot
