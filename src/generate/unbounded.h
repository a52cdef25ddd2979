// Texts without end, scored or generated in one stream, in memory that stays the same and at a time per token that does.
//
// Where the position method's bias falls linearly with the distance, keys are dropped once they cannot matter any more, and
// every token is certified: kernels/forgetting.h. Other methods see a window of the last tokens and the first few, their
// attention sinks. That is an approximation: what lies between is out of sight.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "generate/continuation.h"
#include "generate/score.h"
#include "model/inference.h"
#include "run/results.h"

namespace longshot {

struct UnboundedConfig {
  bool on = false;
  bool strict = false;  // drop by what the weights allow, not by the queries seen
  int64_t window = 0;   // of other methods; 0: the training length
  int64_t sinks = 4;    // tokens at the start that stay in sight of a window

  void fields(Options& o);
  // Error(kUsage) that names the option: out of range, or not for this model.
  void validate(const LoadedModel& loaded) const;
  // What a user must know before anything runs: whether the result is certified or an approximation.
  std::string announcement(const LoadedModel& loaded) const;
};

// What a stream's cache has done.
struct UnboundedReport {
  bool certified = false;         // else a window, and an approximation
  int64_t window = 0, sinks = 0;  // of the window
  ForgettingSummary forgotten{};  // of what is certified
  int64_t tokens = 0;             // scored or made
  double seconds = 0;

  // "at most 1.2e-07 of any token's attention was left out; .."
  std::string text() const;
  Json to_json() const;
};

// Fills as much of a buffer as there is; less only at the end.
using TextReader = std::function<size_t(std::span<char>)>;

struct ScoreStreamCallbacks {
  std::function<void(int64_t index, const ScoredToken& token)> on_token = [](int64_t, const ScoredToken&) {};
  // Mean loss of the tokens so far, a few times a second at most.
  std::function<void(int64_t tokens, double loss)> on_progress = [](int64_t, double) {};
  std::function<bool()> should_stop = [] { return false; };
  Watch preparing{};  // before the first token: of bounds from the weights
};

struct ScoredStream {
  UnboundedReport unbounded{};
  int64_t bytes = 0;
  double loss = 0;                           // nats per token
  std::vector<PositionLoss> per_position{};  // by octaves of context
  bool finished = true;                      // false: asked to stop

  double bits_per_byte() const;
};

// A text of any size behind the tokenizer's start id, each token given those before it.
ScoredStream score_unbounded(Context& context, LoadedModel& loaded, const TextReader& read,
                             const UnboundedConfig& config, const ScoreStreamCallbacks& callbacks = {});

struct GeneratedStream {
  UnboundedReport unbounded{};
  Ended ended = Ended::kLength;
  double first_seconds = 0;  // until the first token
};

// Tells the request's text as it is made, and keeps no more of it than its ids. As long as no key was dropped it is the text
// that generate() makes.
GeneratedStream generate_unbounded(Context& context, LoadedModel& loaded, TextRequest request,
                                   const UnboundedConfig& config, const Watch& preparing = {});

}  // namespace longshot
