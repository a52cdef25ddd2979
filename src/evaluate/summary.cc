#include "evaluate/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "base/statistics.h"

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

std::vector<double> block_means(const std::vector<float>& losses) {
  const size_t count = std::min(kBlocks, losses.size());
  std::vector<double> means;
  for (size_t b = 0; b < count; ++b) {
    const size_t begin = b * losses.size() / count, end = (b + 1) * losses.size() / count;
    means.push_back(mean(losses.data() + begin, losses.data() + end));
    if (!std::isfinite(means.back())) return {};
  }
  return means;
}

namespace {

std::vector<PositionLoss> position_bins(int64_t window) {
  std::vector<PositionLoss> bins;
  int64_t from = 0;
  for (int quarter = 0; from < window; ++quarter) {
    const int64_t to = std::min<int64_t>(window, std::llround(std::exp2(0.25 * quarter)));
    if (to > from) bins.push_back({.from = from, .to = to});
    from = to;
  }
  return bins;
}

}  // namespace

std::vector<PositionLoss> loss_by_position(const std::vector<float>& losses, int64_t window) {
  std::vector<PositionLoss> bins = position_bins(window);
  for (PositionLoss& bin : bins) {
    std::vector<double> of_windows;  // the bin's mean in each
    double sum = 0;
    for (size_t start = 0; start < losses.size(); start += static_cast<size_t>(window)) {
      const size_t begin = start + static_cast<size_t>(bin.from);
      const size_t end = std::min(start + static_cast<size_t>(bin.to), losses.size());
      if (begin >= end) break;
      const double part = std::accumulate(losses.begin() + static_cast<int64_t>(begin),
                                          losses.begin() + static_cast<int64_t>(end), 0.0);
      sum += part;
      bin.tokens += static_cast<int64_t>(end - begin);
      of_windows.push_back(part / static_cast<double>(end - begin));
    }
    const double mean = sum / static_cast<double>(bin.tokens);
    if (bin.tokens == 0 || !std::isfinite(mean)) continue;
    bin.loss = mean;
    bin.standard_error = standard_error(of_windows);
  }
  std::erase_if(bins, [](const PositionLoss& b) { return b.tokens == 0; });
  return bins;
}

namespace {

// The three terms from the tokens [begin, end), which hold whole short windows.
Decomposition split_between(const WindowLosses& longer, const WindowLosses& shorter, size_t begin, size_t end) {
  const auto L = static_cast<size_t>(shorter.window);
  const size_t late = L - std::max<size_t>(L / 10, 1);
  double sum = 0, count = 0;  // of the last tenth
  for (size_t i = begin; i < end; ++i) {
    if (i % L < late) continue;
    sum += shorter.losses[i];
    ++count;
  }
  require(count > 0, "{} tokens do not fill one window of {}", end - begin, L);
  const double share = static_cast<double>(L) / static_cast<double>(longer.window), at_L = sum / count;
  const double short_loss = mean(shorter.losses.data() + begin, shorter.losses.data() + end);
  Decomposition d{.length = longer.window};
  d.total = mean(longer.losses.data() + begin, longer.losses.data() + end) - short_loss;
  d.curse_relief = share * short_loss + (1 - share) * at_L - short_loss;
  d.beyond = d.total - d.curse_relief;
  return d;
}

}  // namespace

Decomposition split_gain(const WindowLosses& longer, const WindowLosses& shorter) {
  const size_t tokens = longer.losses.size();
  require(tokens > 0 && tokens == shorter.losses.size(), "{} and {} losses: they must be of the same tokens", tokens,
          shorter.losses.size());
  require(shorter.window > 0 && shorter.window < longer.window, "the window ({}) must exceed the training length ({})",
          longer.window, shorter.window);
  Decomposition whole = split_between(longer, shorter, 0, tokens);
  const size_t windows = tokens / static_cast<size_t>(longer.window), stretches = std::min(kBlocks, windows);
  std::vector<double> total, relief, beyond;
  for (size_t s = 0; s < stretches; ++s) {
    const auto edge = [&](size_t at) { return at * windows / stretches * static_cast<size_t>(longer.window); };
    const Decomposition part = split_between(longer, shorter, edge(s), edge(s + 1));
    total.push_back(part.total), relief.push_back(part.curse_relief), beyond.push_back(part.beyond);
  }
  whole.total_error = standard_error(total);
  whole.curse_relief_error = standard_error(relief);
  whole.beyond_error = standard_error(beyond);
  return whole;
}

}  // namespace longshot
