// How the batch of a step is shared out: sequences over ranks, a rank's over passes, all by one tree of halves
// (base/groups.h), so that the sums have the same bits for every number of ranks that divides the groups.
#pragma once
#include <vector>

#include "base/groups.h"

namespace longshot {

// The tree that adds up one number of each rank: neighbours first.
std::vector<RowGroup> tree_of_ranks(int ranks);

struct BatchCut {
  int64_t sequences = 0;  // of the whole batch
  int64_t groups = 8;     // that a batch is summed by; there are more where there are more ranks
  int64_t together = 1;   // sequences of a pass, at most
  int rank = 0, ranks = 1;
};

struct BatchPlan {
  explicit BatchPlan(const BatchCut& cut);
  BatchPlan(BatchPlan&&) = default;  // passes look into the tree

  int64_t first = 0, count = 0;    // the rank's sequences
  std::vector<RowGroup> tree;      // over them
  std::vector<GroupPiece> passes;  // sequences count from the rank's first; groups are of `tree`
  int64_t longest = 0;             // sequences of a pass
  int64_t least = 1;               // sequences of a group
  int sums = 1;                    // blocks of gradients that exist at once
  bool same_bits = true;           // as with any number of ranks that divides the groups

  // Whether uses of one tensor need gradients of their own: what is added by the tree here, and beyond, must not be
  // added up before.
  bool shared_apart = false;
};

}  // namespace longshot
