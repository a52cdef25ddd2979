#include "evaluate/protocol.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "data/batches.h"
#include "dist/group.h"

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

// Windows of one shape, and which of their tokens: all, or a stretch of a single one.
struct Part {
  std::span<const Window> windows;
  KeyRange tokens;  // of each

  int64_t count() const { return tokens.last - tokens.first; }
  int64_t context() const { return windows[0].count - windows[0].scored; }
  int64_t scored_from() const { return std::clamp(context() - tokens.first, int64_t{0}, count()); }
  int64_t scored() const { return count() - scored_from(); }
};

// Runs parts of the stream, with memory that is laid out anew only where their shape changes.
class Scorer {
 public:
  Scorer(Context& context, Transformer& model, const TokenFile& stream, bool document_mask)
      : context_(context), model_(model), stream_(stream), document_mask_(document_mask) {}

  // losses of the scored targets of all windows, in order. With `sharing` the other ranks run the rest of the window.
  void score(const Part& part, KeySharing* sharing, std::span<float> losses, const Watch& watch);
  TileCount visited() const { return inference_->visited(); }

 private:
  void prepare(const Inference::Config& config);
  void fill(const Part& part);

  Context& context_;
  Transformer& model_;
  const TokenFile& stream_;
  bool document_mask_;
  std::unique_ptr<Inference> inference_;
  Inference::Config shape_;                  // that it is laid out for
  std::vector<int32_t> inputs_, targets_;    // [windows, count], [windows, scored]
  std::vector<int32_t> first_keys_;          // [windows, count] or none
  std::vector<int32_t> row_, whole_window_;  // [count], [tokens.last]
};

void Scorer::prepare(const Inference::Config& shape) {
  const auto key = [](const Inference::Config& c) { return std::tuple(c.sequences, c.tokens, c.sharing, c.first); };
  if (inference_ && key(shape_) == key(shape)) return;
  inference_.reset();
  inference_ = std::make_unique<Inference>(context_, model_, shape);
  shape_ = shape;
}

void Scorer::fill(const Part& part) {
  const auto windows = part.windows.size(), count = static_cast<size_t>(part.count()),
             scored = static_cast<size_t>(part.scored());
  inputs_.resize(windows * count);
  first_keys_.resize(document_mask_ ? inputs_.size() : 0);
  row_.resize(count);
  targets_.resize(windows * scored);
  for (size_t b = 0; b < windows; ++b) {
    const int64_t first = part.windows[b].first;
    fill_row(stream_, first + part.tokens.first, part.count(), std::span(inputs_).subspan(b * count, count), row_);
    std::copy(row_.end() - part.scored(), row_.end(), targets_.begin() + static_cast<int64_t>(b * scored));
    if (!document_mask_) continue;
    whole_window_.resize(static_cast<size_t>(part.tokens.last));
    fill_document_starts(stream_, first, whole_window_);
    std::copy(whole_window_.begin() + part.tokens.first, whole_window_.end(),
              first_keys_.begin() + static_cast<int64_t>(b * count));
  }
}

void Scorer::score(const Part& part, KeySharing* sharing, std::span<float> losses, const Watch& watch) {
  prepare(
      {.sequences = std::ssize(part.windows), .tokens = part.count(), .sharing = sharing, .first = part.tokens.first});
  fill(part);
  const int64_t moved = part.windows.size() > 1 ? part.windows[1].first - part.windows[0].first : 0;
  inference_->score({.inputs = inputs_,
                     .length = part.count(),
                     .first_key = first_keys_,
                     .shift = moved < part.count() ? moved : 0,
                     .watch = watch},
                    targets_, part.scored_from(), losses);
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

// What a rank tells the others at the end of a round.
struct Round {
  bool stopped = false;
  TileCount tiles{};
  HaloCount halo{};
};

// Batches in rounds: in each, the r-th group of ranks takes the r-th, and rank 0 gets the losses of all. A batch is the same
// whoever runs it, and so are its bits.
class SharedBatches {
 public:
  SharedBatches(Communicator& world, int group, std::span<const WindowBatch> batches)
      : world_(world), group_(group), batches_(batches) {}

  // What a rank has in the next round: nothing, part of a window that its group shares, or all of a batch.
  struct Share {
    const WindowBatch* batch = nullptr;
    bool is_stretch = false;
    Part part{};
    int64_t first_loss() const {
      return batch->first + std::clamp(part.tokens.first - part.context(), int64_t{0}, part.windows[0].scored);
    }
    std::span<float> of(std::span<float> losses) const {
      return losses.subspan(static_cast<size_t>(first_loss()),
                            part.windows.size() * static_cast<size_t>(part.scored()));
    }
    bool is_empty() const { return !batch || part.tokens.empty(); }
  };
  Share share_of(int rank) const {
    const size_t at = next_ + static_cast<size_t>(rank / group_);
    if (at >= batches_.size()) return {};
    const WindowBatch& batch = batches_[at];
    const int64_t count = batch.windows[0].count;
    const auto member = static_cast<size_t>(rank % group_);
    if (group_ > 1 && batch.windows.size() == 1)
      return {&batch, true, {batch.windows, stretches_of(count, group_)[member]}};
    return {&batch, false, {batch.windows, {0, member == 0 ? count : 0}}};
  }
  Share own() const { return share_of(world_.rank()); }
  bool more() const { return next_ < batches_.size(); }
  // Targets of the rounds that have ended, and of the one under way.
  int64_t done() const { return first_of(next_); }
  int64_t round_tokens() const { return first_of(next_ + batches_of_round()) - done(); }

  // Ends the round: what this rank has found goes to rank 0. False where a rank was stopped in it.
  bool end_round(const Round& own, Scores& scores) {
    const std::string bytes(reinterpret_cast<const char*>(&own), sizeof own);
    bool stopped = false;
    for (const std::string& text : world_.gather(bytes)) {
      Round round;
      std::memcpy(&round, text.data(), sizeof round);
      stopped |= round.stopped;
      scores.tiles.seen += round.tiles.seen;
      scores.tiles.all += round.tiles.all;
      scores.halo.add(round.halo);
    }
    if (stopped) return false;
    if (!world_.is_alone()) send_losses(scores.losses);
    next_ = std::min(next_ + batches_of_round(), batches_.size());
    return true;
  }

 private:
  size_t batches_of_round() const { return static_cast<size_t>(world_.size() / group_); }
  int64_t first_of(size_t batch) const {
    if (batch < batches_.size()) return batches_[batch].first;
    return batches_.empty() ? 0 : batches_.back().first + batches_.back().scored;
  }
  void send_losses(std::span<float> losses) {
    const auto transfers = world_.transfers();
    for (int r = 1; r < world_.size(); ++r) {
      const Share share = share_of(r);
      if (share.is_empty()) continue;
      const std::span<std::byte> bytes = std::as_writable_bytes(share.of(losses));
      if (world_.is_root()) transfers->receive(r, kLosses, bytes);
      if (world_.rank() == r) transfers->send(0, kLosses, bytes);
    }
    world_.wait(*transfers);
  }

  static constexpr int kLosses = Transfers::kFirstTag;
  Communicator& world_;
  int group_;  // ranks that run a batch together
  std::span<const WindowBatch> batches_;
  size_t next_ = 0;  // batch of rank 0 in the next round
};

int ranks_per_window(const ScoreOptions& options, std::span<const WindowBatch> batches, int ranks) {
  if (options.ranks_per_window > 0) return options.ranks_per_window;
  const bool long_windows = std::ranges::any_of(batches, [](const WindowBatch& b) {
    return b.windows.size() == 1 && b.windows[0].count > Inference::kChunkTokens;
  });
  return long_windows && std::cmp_less(batches.size(), ranks) ? ranks : 1;
}

// The ranks that run a batch with this one.
struct Group {
  std::unique_ptr<Communicator> made;
  Communicator& ranks;

  Group(Communicator& world, int size)
      : made(size == world.size() ? nullptr : group_of(world, size)), ranks(made ? *made : world) {}
};

}  // namespace

Scores score_stream(Context& context, Transformer& model, const Stretch& stretch, const ScoreOptions& options) {
  require(stretch.tokens <= stretch.stream.size(), "{}: {} tokens are to be scored, it has {}",
          stretch.stream.path().string(), stretch.tokens, stretch.stream.size());
  const double start = seconds_now();
  const auto seconds = [&] { return seconds_now() - start; };
  const std::unique_ptr<Communicator> alone = options.world ? nullptr : longshot::alone();
  Communicator& world = options.world ? *options.world : *alone;
  const std::vector<Window> windows = plan_windows(stretch.windows, stretch.tokens);
  const std::vector<WindowBatch> batches = batches_of(windows, options.batch_tokens);
  const Group group(world, ranks_per_window(options, batches, world.size()));
  SharedBatches shared(world, group.ranks.size(), batches);
  StretchSharing sharing(group.ranks);
  Scores scores;
  scores.losses.resize(static_cast<size_t>(stretch.tokens));
  Scorer scorer(context, model, stretch.stream, options.document_mask);
  while (scores.finished && shared.more()) {
    context.update_share();
    Round round;
    const auto progress = [&](double share) {
      options.on_progress(shared.done() + static_cast<int64_t>(share * static_cast<double>(shared.round_tokens())),
                          seconds());
    };
    try {
      const SharedBatches::Share own = shared.own();
      if (own.is_stretch) sharing.begin(own.part.windows[0].count);
      if (!own.is_empty()) {
        scorer.score(own.part, own.is_stretch ? &sharing : nullptr, own.of(scores.losses),
                     {progress, options.should_stop});
        round.tiles = scorer.visited();
      } else if (own.is_stretch) {
        sharing.run_without_tokens(model.config().layers);
      }
      if (own.is_stretch) round.halo = sharing.received();
    } catch (const Stopped&) {
      round.stopped = true;
    }
    scores.finished = shared.end_round(round, scores);
  }
  scores.losses.resize(static_cast<size_t>(shared.done()));
  scores.seconds = seconds();
  return scores;
}

}  // namespace longshot
