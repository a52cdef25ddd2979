// Sums over a batch that have the same bits on one process and on many. The batch is cut into groups of neighbouring
// sequences, by itself alone. A sum is made inside every group, from zero, and the groups' sums are added by a fixed binary
// tree; a process that holds a whole subtree makes that part of it.
//
// The tree is written as its leaves in order: behind a group the last two partial sums are added, `merges` times. Eight
// groups: 0, 1, 0, 2, 0, 1, 0, 3.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace longshot {

constexpr int kMostDepth = 32;  // of a tree

struct RowGroup {
  int64_t end;  // behind its last row
  int merges;
};

// A subtree; what its last group would merge with beyond it is not its business. Without groups all rows are one.
struct RowGroups {
  std::span<const RowGroup> groups = {};
  int64_t begin = 0;  // the first row

  bool plain() const { return groups.size() <= 1; }
  int64_t end() const { return groups.empty() ? begin : groups.back().end; }
  // Partial sums that exist at once.
  int depth() const {
    int top = 0, most = 1;
    for (const RowGroup& g : groups) {
      most = std::max(most, ++top);
      top = std::max(top - g.merges, 1);
    }
    return most;
  }
};

// leaf(first row, rows, partial sum) and merge(into, from), in the order of the tree; partial sums are numbered from 0,
// where the whole is in the end. Rows count from the first group's.
template <class Leaf, class Merge>
void sum_by_groups(const RowGroups& all, Leaf&& leaf, Merge&& merge) {
  int top = 0;
  int64_t first = all.begin;
  for (const RowGroup& g : all.groups) {
    leaf(first - all.begin, g.end - first, top++);
    for (int m = 0; m < g.merges && top > 1; ++m, --top) merge(top - 2, top - 1);
    first = g.end;
  }
}

// Halves of [first, first + count), halves of these, and so on `levels` times, or until one is left.
std::vector<RowGroup> halved(int64_t first, int64_t count, int levels);

// A tree's rows, as many at once as `most` allows: whole subtrees, or parts of a group that is larger.
struct GroupPiece {
  int64_t first, count;  // rows, from the first group's
  RowGroups groups;      // the subtree; plain where it is a group or a part of one
  bool goes_on;          // adds to the partial sum of the piece before
  int merges;            // behind it the last two partial sums are added so often
};

class GroupPieces {
 public:
  GroupPieces(const RowGroups& all, int64_t most) : all_(all), most_(most), row_(all.begin) {}
  std::optional<GroupPiece> next();

 private:
  RowGroups all_;
  int64_t most_;
  size_t group_ = 0;  // the next piece begins in it
  int64_t row_, part_ = 0;
};

// Partial sums that exist at once where the pieces' own are made one by one.
int depth_of_pieces(const RowGroups& all, int64_t most);

}  // namespace longshot
