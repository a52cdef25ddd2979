// Byte-pair merging: the ids of a piece's bytes or characters become those of its tokens by joining the neighbouring pair
// of lowest rank, leftmost first, until no pair has one.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace longshot {

struct Merge {
  int32_t left, right, joined;
};

// What a piece consists of before anything is merged.
struct BpeSymbols {
  static constexpr int32_t kNone = -1;
  bool characters_first = false;     // a character that has an id is one symbol; else every byte is
  std::array<int32_t, 256> bytes{};  // kNone: such a byte is unknown
  std::unordered_map<uint32_t, int32_t> characters{};
  int32_t unknown = kNone;    // kNone: what is unknown is left out
  bool fuse_unknown = false;  // several in a row are one

  int32_t byte(char c) const { return bytes[static_cast<unsigned char>(c)]; }
  void append(std::string_view piece, std::vector<int32_t>& ids) const;
};

class BpeMerges {
 public:
  explicit BpeMerges(std::span<const Merge> merges);  // in order of rank

  // Memory of one thread.
  struct Scratch {
    std::vector<int32_t> ids;
    std::vector<uint32_t> next, previous;
    std::vector<uint64_t> heap;
  };
  // Appends what the symbols in scratch.ids become.
  void append(Scratch& scratch, std::vector<int32_t>& ids) const;

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

  std::vector<Slot> slots_;
  Slot none_;
};

}  // namespace longshot
