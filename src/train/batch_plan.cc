#include "train/batch_plan.h"

#include <bit>

#include "base/error.h"

namespace longshot {
namespace {

// Of `ranks`, those that take the first part.
int first_part(int ranks) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks - 1))); }

void add_ranks(int first, int ranks, std::vector<RowGroup>& tree) {
  if (ranks == 1) {
    tree.push_back({first + 1, 0});
    return;
  }
  const int left = first_part(ranks);
  add_ranks(first, left, tree);
  add_ranks(first + left, ranks - left, tree);
  ++tree.back().merges;
}

}  // namespace

std::vector<RowGroup> tree_of_ranks(int ranks) {
  std::vector<RowGroup> tree;
  add_ranks(0, ranks, tree);
  return tree;
}

BatchPlan::BatchPlan(const BatchCut& cut) : count(cut.sequences) {
  require_usage(cut.sequences >= cut.ranks, "--batch-tokens holds {} sequences, too few for {} ranks", cut.sequences,
                cut.ranks);
  for (int rank = cut.rank, ranks = cut.ranks; ranks > 1;) {
    const int left = first_part(ranks);
    const int64_t in_front = count * left / ranks;
    const bool second = rank >= left;
    first += second ? in_front : 0;
    count = second ? count - in_front : in_front;
    rank -= second ? left : 0;
    ranks = second ? ranks - left : left;
  }
  int levels = 0;
  while (int64_t{cut.ranks} << levels < cut.groups) ++levels;
  same_bits = int64_t{cut.ranks} << levels == cut.groups;
  least = std::max<int64_t>(cut.sequences / cut.groups, 1);
  tree = halved(0, count, levels);
  const RowGroups all{tree};
  sums = depth_of_pieces(all, cut.together);
  for (GroupPieces pieces(all, cut.together); const auto piece = pieces.next();) {
    passes.push_back(*piece);
    longest = std::max(longest, piece->count);
  }
  shared_apart = cut.ranks > 1 || sums > 1;
}

}  // namespace longshot
