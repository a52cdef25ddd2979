// Words of which the longest is found that a text begins with, in a time that does not depend on their number.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace longshot {

class PrefixTree {
 public:
  // Of words that others wrote: the search takes time by it at every place of a text.
  static constexpr size_t kLongest = 512;

  struct Match {
    int32_t value = -1;  // negative: none
    size_t length = 0;
  };

  bool empty() const { return values_.size() == 1; }

  // REQUIRES: the word is not empty, the value is not negative. Of two equal words the first stays.
  void insert(std::string_view word, int32_t value) {
    uint32_t node = 0;
    for (const char c : word) {
      uint32_t next = child(node, c);
      if (next == 0) {
        next = static_cast<uint32_t>(values_.size());
        values_.push_back(-1);
        if (node == 0) {
          root_[static_cast<unsigned char>(c)] = next;
        } else {
          if (values_.size() * 2 > slots_.size()) grow();
          place({key(node, c), next});
        }
      }
      node = next;
    }
    if (values_[node] < 0) values_[node] = value;
  }

  Match longest(std::string_view text) const {
    Match best;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, text[i]);
      if (node == 0) break;
      if (values_[node] >= 0) best = {values_[node], i + 1};
    }
    return best;
  }

 private:
  struct Slot {
    uint64_t key = 0;  // 0: free
    uint32_t node = 0;
  };
  static uint64_t key(uint32_t node, char c) { return uint64_t{node} << 8 | static_cast<unsigned char>(c); }
  // 0: there is none. The root's are in a table: most texts end there.
  uint32_t child(uint32_t node, char c) const {
    if (node == 0) return root_[static_cast<unsigned char>(c)];
    const uint64_t wanted = key(node, c);
    const size_t mask = slots_.size() - 1;
    for (size_t s = mix64(wanted) & mask;; s = (s + 1) & mask) {
      if (slots_[s].key == wanted) return slots_[s].node;
      if (slots_[s].key == 0) return 0;
    }
  }
  void place(Slot slot) {
    const size_t mask = slots_.size() - 1;
    size_t s = mix64(slot.key) & mask;
    while (slots_[s].key != 0) s = (s + 1) & mask;
    slots_[s] = slot;
  }
  void grow() {
    std::vector<Slot> before(slots_.size() * 2);
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.key != 0) place(slot);
    }
  }

  std::array<uint32_t, 256> root_{};
  std::vector<int32_t> values_{-1};  // of each node; the root is the first
  std::vector<Slot> slots_ = std::vector<Slot>(16);
};

}  // namespace longshot
