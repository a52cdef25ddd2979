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
  std::vector<Candidate> all(log_p.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<int32_t>(i), log_p[i]};  // ln p for now
  if (config.repetition_penalty != 1) {
    const size_t recent = std::min(before.size(), static_cast<size_t>(config.repetition_window));
    std::vector<int32_t> ids(before.end() - static_cast<int64_t>(recent), before.end());
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    for (const int32_t id : ids) all[static_cast<size_t>(id)].probability *= config.repetition_penalty;
  }
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
  };
  if (config.temperature == 0) return {{std::ranges::min_element(all, likelier)->id, 1}};
  const size_t k = config.top_k > 0 ? std::min(all.size(), static_cast<size_t>(config.top_k)) : all.size();
  std::partial_sort(all.begin(), all.begin() + static_cast<int64_t>(k), all.end(), likelier);
  all.resize(k);
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
