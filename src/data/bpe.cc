#include "data/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/rng.h"
#include "base/utf8.h"

namespace longshot {
namespace {
constexpr size_t kShort = 48;  // up to here looking at all pairs again beats a heap
}

void BpeSymbols::append(std::string_view piece, std::vector<int32_t>& ids) const {
  if (!characters_first) {
    for (const char c : piece) ids.push_back(byte(c));
    return;
  }
  bool after_unknown = false;
  for (const char *p = piece.data(), *end = p + piece.size(); p < end;) {
    const CodePoint c = decode_utf8(p, end);
    const auto known = characters.find(c.value);
    const bool spelled = known == characters.end() && byte(*p) != kNone;
    if (known != characters.end()) {
      ids.push_back(known->second);
    } else if (spelled) {
      for (uint32_t i = 0; i < c.length; ++i) ids.push_back(byte(p[i]));
    } else if (unknown != kNone && !(after_unknown && fuse_unknown)) {
      ids.push_back(unknown);
    }
    after_unknown = known == characters.end() && !spelled;
    p += c.length;
  }
}

BpeMerges::BpeMerges(std::span<const Merge> merges) : slots_(std::bit_ceil(merges.size() * 2 + 2)) {
  const size_t mask = slots_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = key(merges[rank].left, merges[rank].right);
    size_t s = mix64(pair) & mask;
    while (slots_[s].rank != kNoRank && slots_[s].pair != pair) s = (s + 1) & mask;
    if (slots_[s].rank == kNoRank) slots_[s] = {pair, static_cast<uint32_t>(rank), merges[rank].joined};
  }
}

const BpeMerges::Slot& BpeMerges::find(int32_t left, int32_t right) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t pair = key(left, right);
  for (size_t s = mix64(pair) & mask;; s = (s + 1) & mask) {
    if (slots_[s].pair == pair) return slots_[s];
    if (slots_[s].rank == kNoRank) return none_;
  }
}

void BpeMerges::append(Scratch& scratch, std::vector<int32_t>& ids) const {
  scratch.ids.size() <= kShort ? append_short(scratch, ids) : append_long(scratch, ids);
}

void BpeMerges::append_short(Scratch& scratch, std::vector<int32_t>& ids) const {
  std::vector<int32_t>& parts = scratch.ids;
  std::array<const Slot*, kShort> pairs{};  // pairs[i]: parts i and i + 1
  for (size_t i = 0; i + 1 < parts.size(); ++i) pairs[i] = &find(parts[i], parts[i + 1]);
  while (parts.size() > 1) {
    const size_t count = parts.size() - 1;
    size_t best = 0;
    for (size_t i = 1; i < count; ++i) {
      if (pairs[i]->rank < pairs[best]->rank) best = i;
    }
    if (pairs[best]->rank == kNoRank) break;
    parts[best] = pairs[best]->joined;
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(pairs.begin() + best + 1, pairs.begin() + count, pairs.begin() + best);
    if (best > 0) pairs[best - 1] = &find(parts[best - 1], parts[best]);
    if (best + 1 < parts.size()) pairs[best] = &find(parts[best], parts[best + 1]);
  }
  ids.insert(ids.end(), parts.begin(), parts.end());
}

// The same with a heap of (rank, place) over a list: n log n.
void BpeMerges::append_long(Scratch& scratch, std::vector<int32_t>& ids) const {
  const auto size = static_cast<uint32_t>(scratch.ids.size());
  std::vector<int32_t>& parts = scratch.ids;
  std::vector<uint32_t>&next = scratch.next, &previous = scratch.previous;
  std::vector<uint64_t>& heap = scratch.heap;
  next.resize(size);
  previous.resize(size);
  heap.clear();
  const auto push = [&](uint32_t left) {
    const Slot& slot = find(parts[left], parts[next[left]]);
    if (slot.rank == kNoRank) return;
    heap.push_back(uint64_t{slot.rank} << 32 | left);
    std::ranges::push_heap(heap, std::greater{});
  };
  for (uint32_t i = 0; i < size; ++i) next[i] = i + 1, previous[i] = i - 1;
  for (uint32_t i = 0; i + 1 < size; ++i) push(i);
  constexpr int32_t kGone = -1;
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater{});
    const auto rank = static_cast<uint32_t>(heap.back() >> 32), left = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (parts[left] == kGone || next[left] >= size) continue;
    const uint32_t right = next[left];
    const Slot& slot = find(parts[left], parts[right]);
    if (slot.rank != rank) continue;  // an older state of this place
    parts[left] = slot.joined;
    parts[right] = kGone;
    next[left] = next[right];
    if (next[left] < size) {
      previous[next[left]] = left;
      push(left);
    }
    if (left > 0) push(previous[left]);
  }
  for (uint32_t i = 0; i < size; i = next[i]) ids.push_back(parts[i]);
}

}  // namespace longshot
