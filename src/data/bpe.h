// Byte-pair merging: a piece of bytes becomes ids by joining the neighbouring pair of lowest rank, leftmost
// first, until no pair has one.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace longshot {

struct Merge {
  int32_t left, right, joined;
};

class BpeMerges {
 public:
  // `byte_ids` has the id of every byte; merges stand in order of rank.
  BpeMerges(const std::array<int32_t, 256>& byte_ids, std::span<const Merge> merges);

  // Memory of one thread.
  struct Scratch {
    std::vector<int32_t> ids;
    std::vector<uint32_t> next, previous;
    std::vector<uint64_t> heap;
  };
  // Appends the ids of one piece.
  void append(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  int32_t byte_id(char c) const { return byte_ids_[static_cast<unsigned char>(c)]; }

 private:
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;
  struct Slot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = kNoRank;
    int32_t joined = 0;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Slot& find(int32_t left, int32_t right) const;
  void append_short(Scratch& scratch, std::vector<int32_t>& ids) const;
  void append_long(Scratch& scratch, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<Slot> slots_;
  Slot none_;
};

}  // namespace longshot
