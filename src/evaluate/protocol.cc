#include "evaluate/protocol.h"

#include <algorithm>
#include <cstring>
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

// Windows that are run at once: all have one shape.
struct WindowBatch {
  std::span<const Window> windows;
  int64_t first = 0, scored = 0;  // targets
};

std::vector<WindowBatch> batches_of(std::span<const Window> windows, int64_t batch_tokens) {
  std::vector<WindowBatch> batches;
  int64_t first = 0;
  while (!windows.empty()) {
    const Window& shape = windows[0];
    const auto most = static_cast<size_t>(std::max<int64_t>(batch_tokens / shape.count, 1));
    size_t n = 1;
    while (n < std::min(most, windows.size()) && windows[n].count == shape.count && windows[n].scored == shape.scored)
      ++n;
    const int64_t scored = static_cast<int64_t>(n) * shape.scored;
    batches.push_back({windows.first(n), first, scored});
    windows = windows.subspan(n);
    first += scored;
  }
  return batches;
}

std::span<float> losses_of(const WindowBatch& batch, std::span<float> all) {
  return all.subspan(static_cast<size_t>(batch.first), static_cast<size_t>(batch.scored));
}

// What a rank tells the others at the end of a round.
struct Round {
  bool stopped = false;
  TileCount tiles{};
};

// Batches in rounds: in each, rank r takes the r-th, and rank 0 gets the losses of all. A batch is the same whoever runs it,
// and so are its bits.
class SharedBatches {
 public:
  SharedBatches(Communicator& world, std::span<const WindowBatch> batches) : world_(world), batches_(batches) {}

  // The next round's batch of this rank; null where it has none. REQUIRES: more().
  const WindowBatch* own() const {
    const size_t at = next_ + static_cast<size_t>(world_.rank());
    return at < batches_.size() ? &batches_[at] : nullptr;
  }
  bool more() const { return next_ < batches_.size(); }
  // Targets of the rounds that have ended, and of the one under way.
  int64_t done() const { return first_of(next_); }
  int64_t round_tokens() const { return first_of(next_ + static_cast<size_t>(world_.size())) - done(); }

  // Ends the round: what this rank has found goes to rank 0. False where a rank was stopped in it.
  bool end_round(const Round& own, std::span<float> losses, TileCount& tiles) {
    const std::string bytes(reinterpret_cast<const char*>(&own), sizeof own);
    bool stopped = false;
    for (const std::string& text : world_.gather(bytes)) {
      Round round;
      std::memcpy(&round, text.data(), sizeof round);
      stopped |= round.stopped;
      tiles.seen += round.tiles.seen;
      tiles.all += round.tiles.all;
    }
    if (stopped) return false;
    if (!world_.is_alone()) send_losses(losses);
    next_ = std::min(next_ + static_cast<size_t>(world_.size()), batches_.size());
    return true;
  }

 private:
  int64_t first_of(size_t batch) const {
    if (batch < batches_.size()) return batches_[batch].first;
    return batches_.empty() ? 0 : batches_.back().first + batches_.back().scored;
  }
  void send_losses(std::span<float> losses) {
    const auto bytes = [&](const WindowBatch& b) { return std::as_writable_bytes(losses_of(b, losses)); };
    const auto transfers = world_.transfers();
    if (!world_.is_root()) {
      if (const WindowBatch* batch = own()) transfers->send(0, kLosses, bytes(*batch));
    } else {
      for (int r = 1; r < world_.size() && next_ + static_cast<size_t>(r) < batches_.size(); ++r)
        transfers->receive(r, kLosses, bytes(batches_[next_ + static_cast<size_t>(r)]));
    }
    world_.wait(*transfers);
  }

  static constexpr int kLosses = Transfers::kFirstTag;
  Communicator& world_;
  std::span<const WindowBatch> batches_;
  size_t next_ = 0;  // batch of rank 0 in the next round
};

}  // namespace

Scores score_stream(Context& context, Transformer& model, const Stretch& stretch, const ScoreOptions& options) {
  require(stretch.tokens <= stretch.stream.size(), "{}: {} tokens are to be scored, it has {}",
          stretch.stream.path().string(), stretch.tokens, stretch.stream.size());
  const double start = seconds_now();
  const auto seconds = [&] { return seconds_now() - start; };
  const std::unique_ptr<Communicator> alone = options.world ? nullptr : longshot::alone();
  const std::vector<Window> windows = plan_windows(stretch.windows, stretch.tokens);
  const std::vector<WindowBatch> batches = batches_of(windows, options.batch_tokens);
  SharedBatches shared(options.world ? *options.world : *alone, batches);
  Scores scores;
  scores.losses.resize(static_cast<size_t>(stretch.tokens));
  Scorer scorer(context, model, stretch.stream, options.document_mask);
  while (scores.finished && shared.more()) {
    context.update_share();
    Round round;
    if (const WindowBatch* batch = shared.own()) {
      const auto progress = [&](double share) {
        options.on_progress(shared.done() + static_cast<int64_t>(share * static_cast<double>(shared.round_tokens())),
                            seconds());
      };
      try {
        scorer.score(batch->windows, losses_of(*batch, scores.losses), {progress, options.should_stop});
        round.tiles = scorer.visited();
      } catch (const Stopped&) {
        round.stopped = true;
      }
    }
    scores.finished = shared.end_round(round, scores.losses, scores.tiles);
  }
  scores.losses.resize(static_cast<size_t>(shared.done()));
  scores.seconds = seconds();
  return scores;
}

}  // namespace longshot
