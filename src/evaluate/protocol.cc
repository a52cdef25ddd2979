#include "evaluate/protocol.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "data/batches.h"

namespace longshot {

std::vector<Window> plan_windows(const Protocol& p, int64_t tokens) {
  require_usage(p.window > 0, "length must be positive, not {}", p.window);
  require_usage(p.stride > 0 && p.stride <= p.window, "stride ({}) must be between 1 and the length ({})", p.stride,
                p.window);
  std::vector<Window> windows;
  if (tokens <= 0) return windows;
  const int64_t opening = std::min(p.window / p.stride * p.stride, tokens);
  windows.push_back({0, opening, opening});
  for (int64_t block = opening; block < tokens; block += p.stride) {
    const int64_t scored = std::min(p.stride, tokens - block);
    windows.push_back({block - p.context(), p.context() + scored, scored});
  }
  return windows;
}

Scores score_stream(Context& context, Transformer& model, const TokenFile& stream, const Protocol& protocol,
                    int64_t tokens, const ScoreOptions& options) {
  require(tokens <= stream.size(), "{}: {} tokens are to be scored, it has {}", stream.path().string(), tokens,
          stream.size());
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Window> windows = plan_windows(protocol, tokens);
  Scores scores;
  scores.losses.resize(static_cast<size_t>(tokens));
  std::unique_ptr<Inference> inference;
  struct {
    int64_t sequences = 0, count = 0;
  } shape;
  std::vector<int32_t> inputs, targets, row_targets, first_keys;
  std::vector<float> losses;
  int64_t scored_so_far = 0;
  for (size_t at = 0; at < windows.size();) {
    context.update_share();
    const Window& w = windows[at];
    const int64_t room = std::max<int64_t>(options.batch_tokens / w.count, 1);
    int64_t n = 1;
    while (n < room && at + static_cast<size_t>(n) < windows.size() &&
           windows[at + static_cast<size_t>(n)].count == w.count &&
           windows[at + static_cast<size_t>(n)].scored == w.scored) {
      ++n;
    }
    if (!inference || shape.sequences != n || shape.count != w.count) {
      inference.reset();
      inference = std::make_unique<Inference>(context, model,
                                              Inference::Config{.sequences = n, .tokens = w.count, .capacity = 0});
      shape = {n, w.count};
    }
    const auto count = static_cast<size_t>(w.count), scored = static_cast<size_t>(w.scored);
    inputs.resize(static_cast<size_t>(n) * count);
    first_keys.resize(options.document_mask ? inputs.size() : 0);
    row_targets.resize(count);
    targets.resize(static_cast<size_t>(n) * scored);
    losses.resize(targets.size());
    for (size_t b = 0; b < static_cast<size_t>(n); ++b) {
      fill_row(stream, windows[at + b].first, w.count, std::span(inputs).subspan(b * count, count), row_targets);
      std::copy(row_targets.end() - w.scored, row_targets.end(), targets.begin() + static_cast<int64_t>(b * scored));
      if (options.document_mask)
        fill_document_starts(stream, windows[at + b].first, std::span(first_keys).subspan(b * count, count));
    }
    const int64_t moved = n > 1 ? windows[at + 1].first - w.first : 0;
    inference->score(
        {.inputs = inputs, .length = w.count, .first_key = first_keys, .shift = moved < w.count ? moved : 0}, targets,
        w.count - w.scored, losses);
    std::copy(losses.begin(), losses.end(), scores.losses.begin() + scored_so_far);
    scores.tiles.seen += inference->visited().seen;
    scores.tiles.all += inference->visited().all;
    scored_so_far += n * w.scored;
    at += static_cast<size_t>(n);
    options.on_progress(scored_so_far);
    require(!options.should_stop(), "stopped after {} of {} tokens", scored_so_far, tokens);
  }
  scores.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return scores;
}

}  // namespace longshot
