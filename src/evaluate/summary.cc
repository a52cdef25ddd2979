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

std::vector<PositionBin> loss_by_position(const std::vector<float>& losses, int64_t window) {
  std::vector<PositionBin> bins;
  for (int64_t from = 0; from < window;) {
    const auto step = static_cast<int64_t>(std::ceil(static_cast<double>(from) * (std::exp2(0.25) - 1)));
    const int64_t to = std::min(window, from + std::max<int64_t>(step, 1));
    bins.push_back({.from = from, .to = to});
    from = to;
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    const int64_t position = static_cast<int64_t>(i) % window;
    auto bin =
        std::upper_bound(bins.begin(), bins.end(), position, [](int64_t p, const PositionBin& b) { return p < b.to; });
    ++bin->tokens;
    bin->loss += losses[i];
  }
  std::erase_if(bins, [](const PositionBin& b) { return b.tokens == 0; });
  for (PositionBin& b : bins) b.loss /= static_cast<double>(b.tokens);
  return bins;
}

GainSplit split_gain(const std::vector<float>& losses, int64_t window, int64_t train_length) {
  const int64_t windows = static_cast<int64_t>(losses.size()) / window;
  require(windows > 0, "{} tokens do not fill one window of {}", losses.size(), window);
  require(train_length > 0 && train_length < window, "the window ({}) must exceed the training length ({})", window,
          train_length);
  std::vector<double> l(static_cast<size_t>(window), 0.0);
  for (int64_t i = 0; i < windows * window; ++i) l[static_cast<size_t>(i % window)] += losses[static_cast<size_t>(i)];
  for (double& v : l) v /= static_cast<double>(windows);
  const auto N = static_cast<double>(window), L = static_cast<double>(train_length);
  const auto edge = l.begin() + train_length;
  const int64_t tenth = std::max<int64_t>(train_length / 10, 1);
  const double early = std::accumulate(l.begin(), edge, 0.0), late = std::accumulate(edge, l.end(), 0.0);
  const double at_L = std::accumulate(edge - tenth, edge, 0.0) / static_cast<double>(tenth);
  GainSplit d;
  d.total = (early + late) / N - early / L;
  d.curse_relief = early / N - early / L + (N - L) / N * at_L;
  d.beyond = (late - (N - L) * at_L) / N;
  return d;
}

}  // namespace longshot
