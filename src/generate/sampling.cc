#include "generate/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace longshot {
namespace {

void normalise(std::vector<Candidate>& all) {
  double sum = 0;
  for (const Candidate& c : all) sum += c.probability;
  for (Candidate& c : all) c.probability /= sum;
}

bool likelier(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

// Those that repetition is about, sorted, each once.
std::vector<int32_t> recent_ids(std::span<const int32_t> before, const SamplingConfig& config) {
  if (config.repetition_penalty == 1) return {};
  const auto recent = std::min(static_cast<int64_t>(before.size()), config.repetition_window);
  std::vector<int32_t> ids(before.end() - recent, before.end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// The k ids with the largest ln p, which stands for the probability, the most probable first. Nearly all of a large vocabulary
// is only looked at: once k are held, whatever is below the least of them.
std::vector<Candidate> most_probable(std::span<const float> log_p, size_t k) {
  constexpr size_t kBlock = 64;
  const size_t room = 2 * k + kBlock;
  std::vector<Candidate> held;
  float least = -HUGE_VALF;
  const auto keep_best = [&] {
    const auto last = held.begin() + static_cast<std::ptrdiff_t>(std::min(k, held.size()));
    if (last == held.end()) {
      std::ranges::sort(held, likelier);
    } else {
      std::partial_sort(held.begin(), last, held.end(), likelier);
    }
    held.erase(last, held.end());
  };
  for (size_t first = 0; first < log_p.size(); first += kBlock) {
    const auto block = log_p.subspan(first, std::min(kBlock, log_p.size() - first));
    bool any = held.size() < k;
    for (const float x : block) any |= x > least;
    if (!any) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      const float x = std::isnan(block[i]) ? -HUGE_VALF : block[i];
      if (held.size() < k || x > least) held.push_back({static_cast<int32_t>(first + i), x});
    }
    if (held.size() <= room) continue;
    keep_best();
    least = static_cast<float>(held.back().probability);
  }
  keep_best();
  return held;
}

}  // namespace

void SamplingConfig::fields(Options& o) {
  o.group("sampling");
  o.add("temperature", temperature, "below 1 sharper, above 1 flatter; 0: always the most probable token");
  o.add("top-k", top_k, "draw from the k most probable tokens; 0: from all");
  o.add("top-p", top_p, "of those, from the most probable ones that make up this share; 1: from all");
  o.add("min-p", min_p, "of those, from the ones at least this likely, relative to the likeliest; 0: from all");
  o.add("repetition-penalty", repetition_penalty, "ln p of recent tokens is multiplied by this; 1: none");
  o.add("repetition-window", repetition_window, "how many tokens are recent");
  o.add("seed", seed, "the same seed, prompt and options give the same text");
}

void SamplingConfig::validate() const {
  require_usage(std::isfinite(temperature) && temperature >= 0 && temperature <= 100,
                "--temperature: {} is not between 0 and 100", temperature);
  require_usage(top_k >= 0, "--top-k must not be negative, but is {}", top_k);
  require_usage(top_p > 0 && top_p <= 1, "--top-p: {} is not in (0, 1]", top_p);
  require_usage(min_p >= 0 && min_p < 1, "--min-p: {} is not in [0, 1)", min_p);
  require_usage(repetition_penalty >= 1 && repetition_penalty <= 100,
                "--repetition-penalty: {} is not between 1 and 100", repetition_penalty);
  require_usage(repetition_window >= 0, "--repetition-window must not be negative, but is {}", repetition_window);
}

std::vector<Candidate> candidates(std::span<const float> log_p, std::span<const int32_t> before,
                                  const SamplingConfig& config) {
  const std::vector<int32_t> recent = recent_ids(before, config);
  const size_t wanted = config.temperature == 0 ? 1 : static_cast<size_t>(config.top_k);
  const size_t k = wanted > 0 ? std::min(log_p.size(), wanted) : log_p.size();
  // Ids that are penalised fall in rank; as many more may come up from below.
  std::vector<Candidate> all = most_probable(log_p, std::min(log_p.size(), k + recent.size()));
  for (Candidate& c : all) {
    if (std::ranges::binary_search(recent, c.id)) c.probability *= config.repetition_penalty;
  }
  if (!recent.empty()) std::ranges::sort(all, likelier);
  all.resize(k);
  if (config.temperature == 0) return {{all[0].id, 1}};
  const double most = all[0].probability;
  for (Candidate& c : all) c.probability = std::exp(c.probability - most);
  normalise(all);

  size_t kept = 0;
  double sum = 0;
  while (kept < all.size() && (kept == 0 || sum < config.top_p)) sum += all[kept++].probability;
  all.resize(kept);
  const double least = config.min_p * all[0].probability;
  std::erase_if(all, [&](const Candidate& c) { return c.probability < least; });

  const double top = all[0].probability;
  for (Candidate& c : all) c.probability = std::pow(c.probability / top, 1 / config.temperature);
  normalise(all);
  return all;
}

int32_t draw(std::span<const Candidate> candidates, double uniform) {
  double rest = uniform;
  for (const Candidate& c : candidates) {
    rest -= c.probability;
    if (rest < 0) return c.id;
  }
  return candidates.back().id;
}

}  // namespace longshot
