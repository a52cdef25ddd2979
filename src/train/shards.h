// Which rank adds up, updates and keeps the moments of which parameters. The block is cut into buckets, which travel as
// soon as their gradients are complete, and each bucket into one piece for every rank.
#pragma once
#include <vector>

#include "model/parameters.h"

namespace longshot {

struct FloatRange {
  int64_t begin = 0, end = 0;  // in a block
  int64_t count() const { return end - begin; }
};

// What the norm of the gradient is summed by, and never cut: part of a tensor.
struct NormUnit {
  int64_t offset, count;
  int owner;
};

// A stretch of the gradients' block; rank r adds up [cuts[r], cuts[r + 1]).
struct Bucket {
  std::vector<int64_t> cuts;
  int64_t begin() const { return cuts.front(); }
  FloatRange of(int rank) const { return {cuts[static_cast<size_t>(rank)], cuts[static_cast<size_t>(rank) + 1]}; }
};

class Shards {
 public:
  Shards(const Parameters& parameters, int ranks);

  int ranks() const { return ranks_; }
  const std::vector<NormUnit>& units() const { return units_; }  // ascending
  // Of the parameters, ascending, and all: those of further gradients in front, from behind.
  const std::vector<Bucket>& of_values() const { return values_; }
  const std::vector<Bucket>& of_gradients() const { return gradients_; }
  // The parameters of a rank, ascending.
  std::vector<FloatRange> of_rank(int rank) const;
  int64_t floats(int rank) const;
  int64_t longest_piece() const;  // of a rank in a bucket; where there are few units, far more than its share

 private:
  int ranks_;
  std::vector<NormUnit> units_;
  std::vector<Bucket> values_, gradients_;
};

}  // namespace longshot
