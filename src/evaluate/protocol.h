// Evaluation protocols: which windows of a token stream are run, and which of their tokens are scored.
//
//   window N, stride S, context C = N - S.   The stream is cut into blocks of S targets; each is scored once, in a
//   window of the block and up to C tokens before it. S = N: non-overlapping.
//
// This is the reference's `--context-window C` with N tokens per sample: the input in front of the stream is the
// tokenizer's start id, positions restart at every window, windows cross document boundaries, the last block may be
// short. The windows of the first blocks all begin at the stream's start and are one pass here: causal attention gives
// them the same scores.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "data/token_file.h"
#include "dist/communicator.h"
#include "evaluate/stretches.h"
#include "model/inference.h"

namespace longshot {

struct WindowShape {
  int64_t window = 0, stride = 0;
  int64_t context() const { return window - stride; }
};

struct Window {
  int64_t first = 0;   // stream index of the first target whose input is in the window
  int64_t count = 0;   // tokens in the window
  int64_t scored = 0;  // the last `scored` targets count
};

// All windows over `tokens` targets. Every target is scored exactly once, in order.
std::vector<Window> plan_windows(const WindowShape& shape, int64_t tokens);

struct ScoreOptions {
  int64_t batch_tokens = 8192;  // of all sequences run at once
  bool document_mask = false;
  Communicator* world = nullptr;  // ranks that share the windows: all of them ask the same
  // Ranks that run a window together, each a stretch of it; a divisor of all. 0: all, where long windows are fewer than
  // ranks, else 1.
  int ranks_per_window = 0;
  std::function<void(int64_t scored, double seconds)> on_progress = [](int64_t, double) {};
  std::function<bool()> should_stop = [] { return false; };
};

struct Scores {
  bool finished = true;       // false: asked to stop, on any rank; the losses end there
  std::vector<float> losses;  // nats, one per target, in stream order; of several ranks all are on rank 0
  double seconds = 0;
  TileCount tiles;
  HaloCount halo;  // of all ranks
};

// The first `tokens` targets of a stream, in windows.
struct Stretch {
  const TokenFile& stream;
  WindowShape windows;
  int64_t tokens = 0;
};
Scores score_stream(Context& context, Transformer& model, const Stretch& stretch, const ScoreOptions& options);

}  // namespace longshot
