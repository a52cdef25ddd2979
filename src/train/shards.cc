#include "train/shards.h"

#include <algorithm>

namespace longshot {
namespace {

constexpr int64_t kUnitFloats = 1 << 12;
constexpr int64_t kBucketFloats = 1 << 20, kPieceFloats = 1 << 16;  // of a bucket, at least; of a rank's piece

// Cuts of [begin, end) at the begins of units, for pieces as equal as these allow.
Bucket cut(std::span<NormUnit> units, int64_t end, int ranks) {
  const int64_t begin = units.front().offset;
  Bucket bucket{{begin}};
  size_t unit = 0;
  for (int r = 0; r < ranks; ++r) {
    const int64_t until = begin + (end - begin) * (r + 1) / ranks;
    while (unit < units.size() && (r + 1 == ranks || units[unit].offset + units[unit].count / 2 < until)) {
      units[unit++].owner = r;
    }
    bucket.cuts.push_back(unit < units.size() ? units[unit].offset : end);
  }
  return bucket;
}

}  // namespace

Shards::Shards(const Parameters& parameters, int ranks) : ranks_(ranks) {
  for (const Tensor& t : parameters.tensors()) {
    for (int64_t at = 0; at < t.size; at += kUnitFloats) {
      units_.push_back({t.offset + at, std::min(kUnitFloats, t.size - at), 0});
    }
  }
  const int64_t least = std::max(kBucketFloats, ranks * kPieceFloats);
  for (size_t first = 0; first < units_.size();) {
    size_t last = first;
    while (last < units_.size() && units_[last].offset - units_[first].offset < least) ++last;
    const int64_t end = last < units_.size() ? units_[last].offset : parameters.end();
    values_.push_back(cut(std::span(units_).subspan(first, last - first), end, ranks));
    first = last;
  }
  // A further gradient is cut where its tensor is.
  for (const FurtherGradient& g : parameters.further_gradients()) {
    const Tensor& t = parameters.tensors()[g.of];
    for (const Bucket& b : values_) {
      if (b.cuts.back() <= t.offset || b.begin() >= t.offset + t.size) continue;
      Bucket moved;
      for (const int64_t at : b.cuts) {
        moved.cuts.push_back(std::clamp(at, t.offset, t.offset + t.size) - t.offset + g.offset);
      }
      gradients_.push_back(std::move(moved));
    }
  }
  gradients_.insert(gradients_.end(), values_.begin(), values_.end());
  std::ranges::sort(gradients_, [](const Bucket& a, const Bucket& b) { return a.begin() > b.begin(); });
}

std::vector<FloatRange> Shards::of_rank(int rank) const {
  std::vector<FloatRange> ranges;
  for (const Bucket& b : values_) {
    const FloatRange own = b.of(rank);
    if (own.count() > 0) ranges.push_back(own);
  }
  return ranges;
}

int64_t Shards::floats(int rank) const {
  int64_t sum = 0;
  for (const FloatRange& r : of_rank(rank)) sum += r.count();
  return sum;
}

int64_t Shards::longest_piece() const {
  int64_t most = 0;
  for (const Bucket& b : gradients_) {
    for (int r = 0; r < ranks_; ++r) most = std::max(most, b.of(r).count());
  }
  return most;
}

}  // namespace longshot
