// Evaluation as commands do it: a protocol run with progress, summed up as a record.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "evaluate/protocol.h"
#include "run/results.h"

namespace longshot {

struct EvalRequest {
  Protocol protocol;
  std::string mode, split, score;
  int64_t tokens = 0;
  int64_t batch_tokens = 8192;
};

struct Evaluated {
  EvalRecord record;
  std::vector<float> losses;
  TileCount tiles;  // of attention: visited, in all
};

// Shows progress on stderr; ends with an Error when a stop signal has come.
Evaluated evaluate(Context& context, Transformer& model, const TokenFile& stream, const EvalRequest& request);

// Losses of the same tokens in non-overlapping windows, by the windows' length.
using LossesByLength = std::map<int64_t, std::vector<float>>;

// What they say beyond their means: the loss by position in the longest windows, and where the gain past the training
// length comes from, if that length is among them.
void analyse_windows(const LossesByLength& losses, RunRecord& record);

// How many tokens of the stream every length scores: all of the first `limit` (0: no limit), or with `same` the
// largest multiple of the longest length, so that no length ends in a short window of its own.
int64_t scored_tokens(const TokenFile& stream, const std::vector<int64_t>& lengths, int64_t limit, bool same);

}  // namespace longshot
