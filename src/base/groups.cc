#include "base/groups.h"

namespace longshot {
namespace {

void add_halves(int64_t first, int64_t count, int levels, std::vector<RowGroup>& groups) {
  if (levels == 0 || count <= 1) {
    groups.push_back({first + count, 0});
    return;
  }
  add_halves(first, count / 2, levels - 1, groups);
  add_halves(first + count / 2, count - count / 2, levels - 1, groups);
  ++groups.back().merges;
}

}  // namespace

std::vector<RowGroup> halved(int64_t first, int64_t count, int levels) {
  std::vector<RowGroup> groups;
  add_halves(first, count, levels, groups);
  return groups;
}

std::optional<GroupPiece> GroupPieces::next() {
  if (group_ == all_.groups.size()) return std::nullopt;
  const RowGroup& own = all_.groups[group_];
  const int64_t begin = group_ == 0 ? all_.begin : all_.groups[group_ - 1].end, rows = own.end - begin;
  if (rows > most_) {
    const int64_t parts = (rows + most_ - 1) / most_, end = begin + rows * (part_ + 1) / parts;
    const bool last = part_ + 1 == parts;
    const GroupPiece piece{row_ - all_.begin, end - row_, {}, part_ > 0, last ? own.merges : 0};
    row_ = end;
    part_ = last ? 0 : part_ + 1;
    group_ += last ? 1 : 0;
    return piece;
  }
  // The largest subtree that begins here.
  size_t count = 1;
  int merges = 0;
  for (size_t i = group_, top = 0; i < all_.groups.size() && all_.groups[i].end - begin <= most_; ++i) {
    const auto wanted = static_cast<size_t>(all_.groups[i].merges), inside = std::min(wanted, top);
    top += 1 - inside;
    if (top > 1) continue;
    count = i + 1 - group_;
    merges = static_cast<int>(wanted - inside);
    if (merges > 0) break;
  }
  const RowGroups subtree{all_.groups.subspan(group_, count), begin};
  group_ += count;
  row_ = subtree.end();
  return GroupPiece{begin - all_.begin, row_ - begin, subtree, false, merges};
}

int depth_of_pieces(const RowGroups& all, int64_t most) {
  GroupPieces pieces(all, most);
  int top = 0, deepest = 1;
  while (const auto piece = pieces.next()) {
    if (!piece->goes_on) ++top;
    deepest = std::max(deepest, top);
    top = std::max(top - piece->merges, 1);
  }
  return deepest;
}

}  // namespace longshot
