// A model tested at several window lengths: what `eval` and `compare` do. Everything that can be wrong is found by
// plan_evaluations(), before the model runs.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "evaluate/protocol.h"
#include "run/results.h"

namespace longshot {

struct EvaluationConfig {
  std::vector<int64_t> lengths{};  // empty: length_ladder(training length)
  std::vector<WindowMode> modes = {WindowMode::kNonoverlapping};
  int64_t stride = 0;  // sliding: tokens scored per window; 0: a quarter of the length
  std::string split = "valid";
  Scored scored = Scored::kSame;
  int64_t max_tokens = 0;      // 0: the whole split
  int64_t sliding_tokens = 0;  // of sliding windows; 0: as many as the others
  int64_t batch_tokens = 8192;
};

// 1, 2, 4, 8 and 16 times the training length.
std::vector<int64_t> length_ladder(int64_t train_length);

// One pass over the stream.
struct Evaluation {
  WindowShape windows;
  WindowMode mode = WindowMode::kNonoverlapping;
  int64_t tokens = 0;
  bool asked_for = true;  // false: at the training length, for the decomposition alone
};

struct EvaluationPlan {
  std::string split;
  Scored scored = Scored::kSame;
  int64_t batch_tokens = 8192;
  int64_t train_length = 0;
  std::vector<Evaluation> evaluations;
  std::vector<int64_t> undefined;      // lengths that the position method does not reach
  std::optional<std::string> scaling;  // of the position method, as EvalRecord has it
  // Ranks that share the windows; all evaluate by the same plan, and the result is rank 0's. Null: this process alone.
  Communicator* world = nullptr;
  int ranks_per_window = 0;  // see ScoreOptions
};

// What of a model decides whether a length can be tested, and what is asked then.
struct ModelReach {
  int64_t train_length = 0;
  int64_t max_length = 0;                // of its position method
  std::optional<std::string> scaling{};  // as EvalRecord has it
};
ModelReach reach_of(Transformer& model);
EvaluationPlan plan_evaluations(const EvaluationConfig& config, ModelReach reach, const TokenFile& stream);

// What an evaluation asks: a record without an answer.
EvalRecord question_of(const Evaluation& evaluation, const EvaluationPlan& plan);

// The weights that are tested.
struct Subject {
  Transformer& model;
  std::optional<std::string> weights{};  // checksum
  OptionalCount step{};
};

struct EvaluationCallbacks {
  struct Progress {
    const Evaluation& evaluation;
    int64_t scored = 0;
    double tokens_per_second = 0;
  };
  struct Done {
    const EvalRecord& record;
    TileCount tiles;  // of attention's keys
    HaloCount halo;
  };
  std::function<void(const Progress&)> on_progress = [](const Progress&) {};
  std::function<void(const Done&)> on_done = [](const Done&) {};
  std::function<bool()> should_stop = [] { return false; };
};

// One length and mode, and the losses of all its tokens in stream order.
struct EvaluatedLosses {
  Evaluation evaluation;
  std::vector<float> losses;
};

struct Evaluated {
  bool finished = true;  // false: asked to stop; what follows is of the evaluations done before
  std::vector<EvalRecord> records;
  std::vector<PositionLoss> per_position;    // in the longest non-overlapping windows
  std::vector<Decomposition> decomposition;  // of non-overlapping windows beyond the training length
  std::vector<EvaluatedLosses> losses;
};

Evaluated evaluate(Context& context, const Subject& subject, const TokenFile& stream, const EvaluationPlan& plan,
                   const EvaluationCallbacks& callbacks);

// Every scored token's loss: a table with a row per token (its place in the stream, its id) and a column per evaluation.
// CSV or safetensors, by the file's ending. Stopped, it leaves no file.
void write_losses(const fs::path& path, const TokenFile& stream, const std::vector<EvaluatedLosses>& losses,
                  const Watch& watch = {});

}  // namespace longshot
