#include "kernels/forgetting.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "kernels/attention_head.h"

namespace longshot {
namespace {

constexpr double kNormMargin = 1.125, kLseMargin = 1;
constexpr double kExpectedGap = 24;  // nats between the largest score of a far key and lse: rings begin with it
constexpr int64_t kMostKeys = int64_t{1} << 22;  // of a ring
// Norms, lse and scores were summed in float: a share of themselves that no sum of a head's size can be off by.
constexpr double kRounding = 0x1p-18;

double log_add(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return low == -HUGE_VAL ? high : high + std::log1p(std::exp(low - high));
}

// ln sum_{0 <= d < n} e^(-m d)
double log_geometric(double slope, int64_t n) {
  return std::log(std::expm1(-slope * static_cast<double>(n)) / std::expm1(-slope));
}

int64_t tile_of(int64_t position) { return position / kKeyTile; }

}  // namespace

double DroppedKeys::norm(int n) {
  static const std::array<double, kNorms> norms = [] {
    std::array<double, kNorms> all{};
    for (int i = 1; i < kNorms; ++i) all[static_cast<size_t>(i)] = std::exp2(0.5 * (i - 1) - 4);
    return all;
  }();
  return norms[static_cast<size_t>(n)];
}

void DroppedKeys::add(double slope, double norm_of_keys, int64_t last, int64_t count) {
  const double passed = last_ < 0 ? 0 : slope * static_cast<double>(last - last_);
  const double keys = log_geometric(slope, count);
  for (int n = 0; n < kNorms; ++n) {
    double& sum = log_mass_[static_cast<size_t>(n)];
    sum = log_add(sum - passed, norm(n) * norm_of_keys + keys);
  }
  largest_ = std::max(largest_, norm_of_keys);
  last_ = last;
}

double DroppedKeys::log_mass(double u) const {
  const double last = norm(kNorms - 1);
  if (empty()) return -HUGE_VAL;
  if (!(u < last)) return log_mass_.back() + (u - last) * largest_;
  int n = 1;
  while (norm(n) < u) ++n;
  const double share = (u - norm(n - 1)) / (norm(n) - norm(n - 1));
  return log_mass_[static_cast<size_t>(n - 1)] * (1 - share) + log_mass_[static_cast<size_t>(n)] * share;
}

void SeenQueries::add(double u, double lse) {
  if (!std::isfinite(u) || !std::isfinite(lse)) return;       // a model that has failed; certify() says so
  const double place = 2 * std::log2(std::max(u, 1e-9)) + 8;  // class 0: up to 2^-4
  const auto last = static_cast<double>(classes_.size() - 1);
  Class& c = classes_[static_cast<size_t>(std::clamp(std::ceil(place), 0.0, last))];
  c.norm = std::max(c.norm, u);
  c.lse = std::min(c.lse, lse);
}

void ForgettingSummary::add(const ForgettingSummary& other) {
  left_out = std::max(left_out, other.left_out);
  least_kept = bytes == 0 ? other.least_kept : std::min(least_kept, other.least_kept);
  most_kept = std::max(most_kept, other.most_kept);
  dropped = std::max(dropped, other.dropped);
  grown += other.grown;
  bytes += other.bytes;
}

Forgetting::Forgetting(const Config& config, KeyStore& store)
    : slopes_(config.slopes.begin(), config.slopes.end()),
      group_(config.shape.group()),
      head_dim_(config.shape.head_dim),
      log_epsilon_(std::log(static_cast<double>(config.epsilon))),
      longer_((config.bf16 ? kBf16Longer : 1) * (1 + kRounding)),
      bounds_(config.bounds),
      heads_(static_cast<size_t>(config.shape.sequences * config.shape.heads)),
      memory_(store.rings.size()),
      dropped_(store.rings.size()) {
  require_usage(config.epsilon > 0,
                "where nothing may be left out of attention, no key can be dropped: the bound is {}", config.epsilon);
  for (size_t h = 0; h < slopes_.size(); ++h) {
    const double fewest = -log_epsilon_ / slopes_[h];
    require_usage(slopes_[h] > 0 && fewest<static_cast<double>(kMostKeys),
                                           "head {} has a slope of {}: it would keep at least {:.3g} keys, more than "
                                           "{}, because none of them can "
                                           "be shown not to matter",
                                           h, slopes_[h], slopes_[h]> 0
                      ? fewest
                      : HUGE_VAL,
                  kMostKeys);
  }
  for (size_t i = 0; i < store.rings.size(); ++i) {
    const auto first = static_cast<int64_t>(i) % store.heads * group_;
    const auto flattest = *std::min_element(slopes_.begin() + first, slopes_.begin() + first + group_);
    const auto expected = static_cast<int64_t>((kExpectedGap - log_epsilon_) / flattest);
    grow(store.rings[i], static_cast<int64_t>(i), std::min(expected, kMostKeys) + config.shape.queries + 2 * kKeyTile);
  }
  grown_ = 0;
}

void Forgetting::grow(KeyRing& ring, int64_t index, int64_t tokens) {
  KeyRing larger;
  Workspace memory([&](Layout& at) { larger.layout(at, head_dim_, tokens); });
  larger.held = ring.held;
  const int64_t key_floats = kKeyTile * head_dim_, value_floats = kKeyTile * padded_dim(head_dim_);
  for (int64_t t = tile_of(ring.held.first); !ring.held.empty() && t <= tile_of(ring.held.last - 1); ++t) {
    const int64_t from = t % tile_of(ring.capacity), to = t % tile_of(larger.capacity);
    std::copy_n(ring.keys + from * key_floats, key_floats, larger.keys + to * key_floats);
    std::copy_n(ring.values + from * value_floats, value_floats, larger.values + to * value_floats);
    larger.norms[to] = ring.norms[from];
  }
  ring = larger;
  memory_[static_cast<size_t>(index)] = std::move(memory);
  ++grown_;
}

// Whether what was dropped up to `last` holds at most epsilon of every query from position `next` on.
bool Forgetting::negligible(const DroppedKeys& dropped, int64_t b, int64_t h, int64_t next, int64_t last) const {
  const double slope = slopes_[static_cast<size_t>(h)];
  if (!bounds_.empty()) {
    const NormBounds& most = bounds_[static_cast<size_t>(h)];
    const double lse = -most.query * most.key * longer_ + log_geometric(slope, next - last);
    return dropped.log_left_out(slope, most.query * longer_, next) - lse <= log_epsilon_;
  }
  bool seen = false;
  for (const SeenQueries::Class& c : head(b, h).seen.classes()) {
    if (c.lse == HUGE_VAL) continue;
    seen = true;
    const double mass = dropped.log_left_out(slope, c.norm * kNormMargin, next);
    if (!(mass - (c.lse - kLseMargin) <= log_epsilon_)) return false;
  }
  return seen;
}

// False where the tile may still matter to a query from position `next` on.
bool Forgetting::drop_oldest_tile(KeyRing& ring, int64_t index, int64_t next) {
  const int64_t key_heads = slopes_count() / group_, b = index / key_heads, first = index % key_heads * group_;
  const int64_t tile = tile_of(ring.held.first), last = (tile + 1) * kKeyTile - 1;
  if (last >= std::min(ring.held.last, next)) return false;
  const int64_t count = last + 1 - ring.held.first;
  std::vector<DroppedKeys> after;
  for (int64_t h = first; h < first + group_; ++h) {
    after.push_back(head(b, h).dropped);
    after.back().add(slopes_[static_cast<size_t>(h)], ring.norm_of(tile), last, count);
    if (!negligible(after.back(), b, h, next, last)) return false;
  }
  for (int64_t g = 0; g < group_; ++g) {
    heads_[static_cast<size_t>(b * slopes_count() + first + g)].dropped = after[static_cast<size_t>(g)];
  }
  ring.held.first = last + 1;
  dropped_[static_cast<size_t>(index)] += count;
  return true;
}

void Forgetting::make_room(KeyStore& store, std::span<const int64_t> position, int64_t count) {
  for (size_t i = 0; i < store.rings.size(); ++i) {
    KeyRing& ring = store.rings[i];
    const int64_t next = position[i / static_cast<size_t>(store.heads)];
    const auto needed = [&] {
      const int64_t first = ring.held.empty() ? next : std::min(ring.held.first, next);
      return (tile_of(next + count - 1) - tile_of(first) + 1) * kKeyTile;
    };
    while (needed() > ring.capacity) {
      if (drop_oldest_tile(ring, static_cast<int64_t>(i), next)) continue;
      const int64_t larger = std::max(2 * ring.capacity, needed());
      require(
          larger <= 2 * kMostKeys,
          "a head of {} keys cannot drop one that might matter, and more than {} are not kept. Its slope is {}: is it "
          "too flat for the size of its queries and keys?",
          ring.held.last - ring.held.first, kMostKeys,
          slopes_[i % static_cast<size_t>(store.heads) * static_cast<size_t>(group_)]);
      grow(ring, static_cast<int64_t>(i), larger);
    }
  }
}

void Forgetting::certify(const Queries& queries) {
  const int64_t H = slopes_count(), T = queries.queries;
  for (size_t i = 0; i < heads_.size(); ++i) {
    Head& head = heads_[i];
    const size_t b = i / static_cast<size_t>(H);
    const double slope = slopes_[i % static_cast<size_t>(H)];
    for (int64_t t = 0; t < std::min(T, queries.counts[b]); ++t) {
      const size_t at = i * static_cast<size_t>(T) + static_cast<size_t>(t);
      const double u = longer_ * queries.q_norm[at];
      const double lse = queries.lse[at] - kRounding * (1 + std::abs(queries.lse[at]));
      head.seen.add(u, lse);
      if (head.dropped.empty()) continue;
      const double mass = std::exp(head.dropped.log_left_out(slope, u, queries.position[b] + t) - lse);
      head.left_out = std::max(head.left_out, mass <= 1 ? mass : 1);
    }
  }
}

void Forgetting::restart(int64_t sequence) {
  const int64_t H = slopes_count(), key_heads = H / group_;
  for (int64_t h = 0; h < H; ++h) heads_[static_cast<size_t>(sequence * H + h)] = {};
  for (int64_t g = 0; g < key_heads; ++g) dropped_[static_cast<size_t>(sequence * key_heads + g)] = 0;
}

ForgettingSummary Forgetting::summary(const KeyStore& store) const {
  ForgettingSummary all{.grown = grown_};
  for (const Head& head : heads_) all.left_out = std::max(all.left_out, head.left_out);
  for (size_t i = 0; i < store.rings.size(); ++i) {
    const KeyRange held = store.rings[i].held;
    const int64_t kept = held.last - held.first;
    all.least_kept = i == 0 ? kept : std::min(all.least_kept, kept);
    all.most_kept = std::max(all.most_kept, kept);
    all.dropped = std::max(all.dropped, dropped_[i]);
    all.bytes += memory_[i].bytes();
  }
  return all;
}

}  // namespace longshot
