#include "cli/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "evaluate/summary.h"

namespace longshot {

int64_t scored_tokens(const TokenFile& stream, const std::vector<int64_t>& lengths, int64_t limit, bool same) {
  const int64_t available = limit > 0 ? std::min(limit, stream.size()) : stream.size();
  require(available > 0, "{}: there are no tokens to score", stream.path().string());
  if (!same) return available;
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  require_usage(available >= longest,
                "--score same needs at least one whole window of {} tokens, but there are {}; use --score all", longest,
                available);
  return available / longest * longest;
}

void analyse_windows(const LossesByLength& losses, RunRecord& record) {
  if (losses.empty()) return;
  const auto& [longest, at_longest] = *losses.rbegin();
  for (const PositionBin& b : loss_by_position(at_longest, longest)) {
    record.per_position.push_back({.from = b.from, .to = b.to, .tokens = b.tokens, .loss = b.loss});
  }
  const auto as_trained = losses.find(record.train_length);
  if (as_trained == losses.end()) return;
  for (auto at = std::next(as_trained); at != losses.end(); ++at) {
    const GainSplit split = split_gain({at->second, at->first}, {as_trained->second, as_trained->first});
    record.decomposition.push_back({at->first, split.total, split.curse_relief, split.beyond});
  }
}

Evaluated evaluate(Context& context, Transformer& model, const TokenFile& stream, const EvalRequest& request) {
  Progress progress;
  const auto start = std::chrono::steady_clock::now();
  ScoreOptions options{.batch_tokens = request.batch_tokens, .document_mask = model.config().document_mask};
  options.should_stop = stop_requested;
  options.on_progress = [&](int64_t done) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double rate = static_cast<double>(done) / std::max(seconds, 1e-9);
    progress.show(fmt::format("{} {}: {}/{} tokens  {} tokens/s  {} left", request.mode, request.protocol.window, done,
                              request.tokens, count_text(rate),
                              duration_text(static_cast<double>(request.tokens - done) / rate)));
  };
  reset_peak_memory();
  Scores scores = score_stream(context, model, stream, request.protocol, request.tokens, options);
  const EvalSummary s = summarize(stream, scores.losses);
  const auto finite = [](double v) { return std::isfinite(v) ? OptionalNumber(v) : std::nullopt; };
  EvalRecord record{.length = request.protocol.window,
                    .mode = request.mode,
                    .stride = request.protocol.stride,
                    .split = request.split,
                    .score = request.score,
                    .tokens = s.tokens,
                    .loss = finite(s.loss),
                    .standard_error = s.standard_error,
                    .perplexity = finite(std::exp(s.loss))};
  if (s.word_loss) record.word_perplexity = finite(std::exp(*s.word_loss));
  if (s.byte_loss) record.bits_per_byte = finite(*s.byte_loss / std::log(2.0));
  record.tokens_per_second = static_cast<double>(s.tokens) / std::max(scores.seconds, 1e-9);
  record.peak_memory_bytes = static_cast<int64_t>(peak_memory_bytes());
  return {std::move(record), std::move(scores.losses), scores.tiles};
}

}  // namespace longshot
