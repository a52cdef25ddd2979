// Training as a whole: from a token set and options to a run on disk; new, taken up again, or from another run's
// weights. What `longshot train` does.
#pragma once
#include "base/watch.h"
#include "data/token_set.h"
#include "train/trainer.h"

namespace longshot {

struct TrainRequest {
  std::string data;  // token set
  std::string out;   // directory of the run
  std::string from;  // a run or checkpoint whose weights to start with; "": new weights
  int64_t eval_tokens = 0;
  int threads = 0;
  ModelConfig model;  // its vocabulary comes from the data
  TrainConfig train;

  bool resume = false;      // go on from the last checkpoint; begin where there is none
  int64_t resume_step = 0;  // go on from the checkpoint of this step; later ones move aside

  // Every option of the run, as config.toml keeps them.
  void fields(Options& o);
  bool resumes() const { return resume || resume_step > 0; }
};

// What stands below the options that are given: those of the run that is taken up again, or the model's of the run to
// start from.
void apply_implied_options(const TrainRequest& request, Options& options);

struct TrainEvents {
  // Everything is checked and in place; training begins at `step`.
  std::function<void(const Trainer& trainer, Transformer& model, int64_t step)> on_start = [](const Trainer&,
                                                                                              Transformer&, int64_t) {};
  std::function<void(const StepReport&)> on_step = [](const StepReport&) {};
  std::function<void(const std::string&)> on_note = [](const std::string&) {};
  std::function<bool()> should_stop = [] { return false; };
  // Before training begins: of the text and of checkpoints, which are read whole, one after the other. Stopped here, the call
  // throws, and the run is as it was.
  Watch reading{};
  // Mean loss over the first `tokens` tokens of the validation split, in windows of `length`, or nothing when asked to
  // stop; empty: no validation.
  std::function<std::optional<double>(Transformer& model, const TokenFile& valid, int64_t tokens, int64_t length)>
      validate;
};

// Rows of the model's embeddings: as many as there are tokens, or as the run has that is gone on from, which may be more.
int64_t model_vocabulary(const TrainRequest& request, const TokenSet& tokens);

// Checks everything that can be checked before it writes anything, then trains. A run that is refused is as it was.
// With `world` all its ranks call this, with the same request; rank 0 alone reads and writes the run.
TrainResult train_run(Context& context, TrainRequest request, const TrainEvents& events, Communicator* world = nullptr);

}  // namespace longshot
