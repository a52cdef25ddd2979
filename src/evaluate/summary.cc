#include "evaluate/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace longshot {
namespace {

constexpr int kResamples = 1000;
constexpr uint64_t kBootstrapSeed = 1;

double mean(const float* first, const float* last) {
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

// Standard deviation of the mean loss when documents are drawn with replacement.
std::optional<double> bootstrap_error(const TokenFile& stream, const std::vector<float>& losses) {
  struct Document {
    double sum;
    double tokens;
  };
  std::vector<Document> documents;
  const auto starts = stream.documents();
  for (size_t d = 0; d < starts.size(); ++d) {
    const auto begin = std::min<uint64_t>(starts[d], losses.size());
    const auto end = std::min<uint64_t>(d + 1 < starts.size() ? starts[d + 1] : losses.size(), losses.size());
    if (begin == end) continue;
    documents.push_back(
        {std::accumulate(losses.begin() + static_cast<int64_t>(begin), losses.begin() + static_cast<int64_t>(end), 0.0),
         static_cast<double>(end - begin)});
  }
  if (documents.size() < 2) return std::nullopt;
  double sum = 0, squares = 0;
  for (int r = 0; r < kResamples; ++r) {
    double loss = 0, tokens = 0;
    for (size_t d = 0; d < documents.size(); ++d) {
      const auto& drawn =
          documents[random_bits(kBootstrapSeed, Stream::kBootstrap, static_cast<uint64_t>(r), d) % documents.size()];
      loss += drawn.sum;
      tokens += drawn.tokens;
    }
    sum += loss / tokens;
    squares += loss / tokens * (loss / tokens);
  }
  const double m = sum / kResamples;
  return std::sqrt(std::max(squares / kResamples - m * m, 0.0));
}

}  // namespace

EvalSummary summarize(const TokenFile& stream, const std::vector<float>& losses) {
  EvalSummary s;
  s.tokens = static_cast<int64_t>(losses.size());
  if (losses.empty()) return s;
  s.loss = mean(losses.data(), losses.data() + losses.size());
  s.standard_error = bootstrap_error(stream, losses);
  const TokenCounts& c = stream.counts();
  if (c.words > 0) s.word_loss = s.loss * static_cast<double>(c.tokens) / static_cast<double>(c.words);
  if (c.bytes > 0) s.byte_loss = s.loss * static_cast<double>(c.tokens) / static_cast<double>(c.bytes);
  return s;
}

std::vector<PositionLoss> loss_by_position(const std::vector<float>& losses, int64_t window) {
  std::vector<PositionLoss> bins;
  int64_t from = 0;
  for (int quarter = 0; from < window; ++quarter) {
    const int64_t to = std::min<int64_t>(window, std::llround(std::exp2(0.25 * quarter)));
    if (to > from) bins.push_back({.from = from, .to = to});
    from = to;
  }
  std::vector<double> sums(bins.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    const int64_t position = static_cast<int64_t>(i) % window;
    const auto bin =
        std::upper_bound(bins.begin(), bins.end(), position, [](int64_t p, const PositionLoss& b) { return p < b.to; });
    ++bin->tokens;
    sums[static_cast<size_t>(bin - bins.begin())] += losses[i];
  }
  for (size_t b = 0; b < bins.size(); ++b) {
    const double mean = sums[b] / static_cast<double>(bins[b].tokens);
    if (bins[b].tokens > 0 && std::isfinite(mean)) bins[b].loss = mean;
  }
  std::erase_if(bins, [](const PositionLoss& b) { return b.tokens == 0; });
  return bins;
}

Decomposition split_gain(const WindowLosses& longer, const WindowLosses& shorter) {
  const size_t tokens = longer.losses.size();
  require(tokens > 0 && tokens == shorter.losses.size(), "{} and {} losses: they must be of the same tokens", tokens,
          shorter.losses.size());
  require(shorter.window > 0 && shorter.window < longer.window, "the window ({}) must exceed the training length ({})",
          longer.window, shorter.window);
  const auto mean = [&](const std::vector<float>& losses) {
    return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(tokens);
  };
  const auto L = static_cast<size_t>(shorter.window);
  const size_t late = L - std::max<size_t>(L / 10, 1);
  double sum = 0, count = 0;  // of the last tenth
  for (size_t i = 0; i < tokens; ++i) {
    if (i % L < late) continue;
    sum += shorter.losses[i];
    ++count;
  }
  require(count > 0, "{} tokens do not fill one window of {}", tokens, L);
  const double share = static_cast<double>(L) / static_cast<double>(longer.window), at_L = sum / count;
  const double short_loss = mean(shorter.losses);
  Decomposition d{.length = longer.window};
  d.total = mean(longer.losses) - short_loss;
  d.curse_relief = share * short_loss + (1 - share) * at_L - short_loss;
  d.beyond = d.total - d.curse_relief;
  return d;
}

}  // namespace longshot
