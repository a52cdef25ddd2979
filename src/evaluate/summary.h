// What per-token losses mean: perplexities, their uncertainty, loss by position, where a gain comes from.
#pragma once
#include <optional>
#include <vector>

#include "data/token_file.h"
#include "run/results.h"

namespace longshot {

struct EvalSummary {
  int64_t tokens = 0;
  double loss = 0;                             // nats per token
  std::optional<double> standard_error;        // of the loss, by bootstrap over documents; none with fewer than 2
  std::optional<double> word_loss, byte_loss;  // nats per word and per byte; none where the counts are unknown
};
EvalSummary summarize(const TokenFile& stream, const std::vector<float>& losses);

// Mean losses of equal stretches of the tokens, in their order: at most kBlocks, fewer where there are fewer tokens; none
// where one is not finite.
inline constexpr size_t kBlocks = 64;
std::vector<double> block_means(const std::vector<float>& losses);

// Log-spaced bins, four an octave with edges at the powers of two, from non-overlapping windows of length `window`. The
// error of a bin is that of the mean over windows.
std::vector<PositionLoss> loss_by_position(const std::vector<float>& losses, int64_t window);

// Where the difference between non-overlapping windows of N and of L < N tokens comes from. The losses are of the same
// tokens in windows of either length; l(t) is the mean loss at position t of the short windows, l_L its mean over the
// last tenth of positions.
//
//   total          loss(N) - loss(L)
//   curse relief   sum_t l(t) / N + (N - L) / N * l_L - loss(L)    fewer starved early tokens, were nothing else to change
//   beyond         total - curse relief                           use (< 0) or harm (> 0) of context beyond L
//
// All three are means over windows of N: their errors come from the same differences in stretches of whole windows, at most
// kBlocks.
struct WindowLosses {
  const std::vector<float>& losses;  // in stream order
  int64_t window;
};
Decomposition split_gain(const WindowLosses& longer, const WindowLosses& shorter);

}  // namespace longshot
