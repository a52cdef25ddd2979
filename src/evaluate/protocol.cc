#include "evaluate/protocol.h"

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "data/batches.h"

namespace longshot {

std::vector<Window> plan_windows(const WindowShape& shape, int64_t tokens) {
  require_usage(shape.window > 0, "length must be positive, not {}", shape.window);
  require_usage(shape.stride > 0 && shape.stride <= shape.window, "stride ({}) must be between 1 and the length ({})",
                shape.stride, shape.window);
  std::vector<Window> windows;
  if (tokens <= 0) return windows;
  const int64_t opening = std::min(shape.window / shape.stride * shape.stride, tokens);
  windows.push_back({0, opening, opening});
  for (int64_t block = opening; block < tokens; block += shape.stride) {
    const int64_t scored = std::min(shape.stride, tokens - block);
    windows.push_back({block - shape.context(), shape.context() + scored, scored});
  }
  return windows;
}

namespace {

// Runs batches of windows of one shape, with memory that is laid out anew only where the shape changes.
class Scorer {
 public:
  Scorer(Context& context, Transformer& model, const TokenFile& stream, bool document_mask)
      : context_(context), model_(model), stream_(stream), document_mask_(document_mask) {}

  // losses of the scored targets of all windows, in order. REQUIRES: all have the same count and scored.
  void score(std::span<const Window> windows, std::span<float> losses, const Watch& watch);
  TileCount visited() const { return inference_->visited(); }

 private:
  void prepare(int64_t sequences, int64_t count);
  void fill(std::span<const Window> windows);

  Context& context_;
  Transformer& model_;
  const TokenFile& stream_;
  bool document_mask_;
  std::unique_ptr<Inference> inference_;
  int64_t sequences_ = 0, count_ = 0;  // that it is laid out for
  std::vector<int32_t> inputs_, targets_, row_,
      first_keys_;  // [windows, count], [windows, scored], [count], [windows, count]
};

void Scorer::prepare(int64_t sequences, int64_t count) {
  if (inference_ && sequences_ == sequences && count_ == count) return;
  inference_.reset();
  inference_ =
      std::make_unique<Inference>(context_, model_, Inference::Config{.sequences = sequences, .tokens = count});
  sequences_ = sequences, count_ = count;
}

void Scorer::fill(std::span<const Window> windows) {
  const auto count = static_cast<size_t>(windows[0].count), scored = static_cast<size_t>(windows[0].scored);
  inputs_.resize(windows.size() * count);
  first_keys_.resize(document_mask_ ? inputs_.size() : 0);
  row_.resize(count);
  targets_.resize(windows.size() * scored);
  for (size_t b = 0; b < windows.size(); ++b) {
    fill_row(stream_, windows[b].first, windows[b].count, std::span(inputs_).subspan(b * count, count), row_);
    std::copy(row_.end() - windows[b].scored, row_.end(), targets_.begin() + static_cast<int64_t>(b * scored));
    if (document_mask_)
      fill_document_starts(stream_, windows[b].first, std::span(first_keys_).subspan(b * count, count));
  }
}

void Scorer::score(std::span<const Window> windows, std::span<float> losses, const Watch& watch) {
  const Window& w = windows[0];
  prepare(static_cast<int64_t>(windows.size()), w.count);
  fill(windows);
  const int64_t moved = windows.size() > 1 ? windows[1].first - w.first : 0;
  inference_->score({.inputs = inputs_,
                     .length = w.count,
                     .first_key = first_keys_,
                     .shift = moved < w.count ? moved : 0,
                     .watch = watch},
                    targets_, w.count - w.scored, losses);
}

// How many windows from the first on have its shape, up to `most`.
size_t alike(std::span<const Window> windows, size_t most) {
  size_t n = 1;
  while (n < std::min(most, windows.size()) && windows[n].count == windows[0].count &&
         windows[n].scored == windows[0].scored) {
    ++n;
  }
  return n;
}

}  // namespace

Scores score_stream(Context& context, Transformer& model, const Stretch& stretch, const ScoreOptions& options) {
  require(stretch.tokens <= stretch.stream.size(), "{}: {} tokens are to be scored, it has {}",
          stretch.stream.path().string(), stretch.tokens, stretch.stream.size());
  const double start = seconds_now();
  const auto seconds = [&] { return seconds_now() - start; };
  const std::vector<Window> windows = plan_windows(stretch.windows, stretch.tokens);
  Scores scores;
  scores.losses.resize(static_cast<size_t>(stretch.tokens));
  Scorer scorer(context, model, stretch.stream, options.document_mask);
  size_t done = 0;  // tokens
  try {
    for (size_t at = 0; at < windows.size();) {
      context.update_share();
      const std::span<const Window> left = std::span(windows).subspan(at);
      const size_t n = alike(left, static_cast<size_t>(std::max<int64_t>(options.batch_tokens / left[0].count, 1)));
      const size_t scored = n * static_cast<size_t>(left[0].scored);
      const auto progress = [&](double share) {
        options.on_progress(static_cast<int64_t>(static_cast<double>(done) + share * static_cast<double>(scored)),
                            seconds());
      };
      scorer.score(left.first(n), std::span(scores.losses).subspan(done, scored), {progress, options.should_stop});
      scores.tiles.seen += scorer.visited().seen;
      scores.tiles.all += scorer.visited().all;
      done += scored;
      at += n;
    }
  } catch (const Stopped&) {
    scores.finished = false;
    scores.losses.resize(done);
  }
  scores.seconds = seconds();
  return scores;
}

}  // namespace longshot
