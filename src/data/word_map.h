// A hash map from words to dense indices 0, 1, 2, .. in order of arrival. Open addressing; words are copied
// into blocks that never move.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace longshot {

// Reads 8 bytes at a time, the last ones overlapping.
inline uint64_t hash_word(std::string_view word) {
  const char* p = word.data();
  const size_t n = word.size();
  const auto load = [](const char* from, size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, from, bytes);
    return value;
  };
  const auto fold = [](uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  constexpr uint64_t kA = 0xa0761d6478bd642f, kB = 0xe7037ed1a0b428db;
  if (n >= 8) {
    uint64_t h = n ^ kA;
    for (size_t i = 0; i + 8 < n; i += 8) h = fold(h ^ load(p + i, 8), kB);
    return fold(h ^ load(p + n - 8, 8), kA ^ n);
  }
  const uint64_t value = n >= 4  ? load(p, 4) << 32 | load(p + n - 4, 4)
                         : n > 0 ? static_cast<uint64_t>(static_cast<unsigned char>(p[0])) << 16 |
                                       static_cast<uint64_t>(static_cast<unsigned char>(p[n / 2])) << 8 |
                                       static_cast<unsigned char>(p[n - 1])
                                 : 0;
  return fold(value ^ kB, kA ^ n);
}

class WordMap {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  WordMap() : slots_(1024) {}

  size_t size() const { return words_.size(); }
  std::string_view word(size_t index) const { return words_[index]; }
  size_t bytes() const { return bytes_; }  // of all words

  uint32_t find(std::string_view word) const { return find(word, hash_word(word)); }

  // The index of `word`, new or known.
  uint32_t insert(std::string_view word) {
    const uint64_t hash = hash_word(word);
    if (const uint32_t index = find(word, hash); index != kNone) return index;
    if ((words_.size() + 1) * 2 > slots_.size()) grow();
    words_.push_back(keep(word));
    place(hash, static_cast<uint32_t>(words_.size() - 1));
    return static_cast<uint32_t>(words_.size() - 1);
  }

  void clear() { *this = WordMap(); }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t index = kNone;
  };
  static constexpr size_t kBlock = 1 << 18;

  uint32_t find(std::string_view word, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t s = hash & mask;; s = (s + 1) & mask) {
      const Slot slot = slots_[s];
      if (slot.index == kNone) return kNone;
      if (slot.tag == tag && words_[slot.index] == word) return slot.index;
    }
  }
  void place(uint64_t hash, uint32_t index) {
    const size_t mask = slots_.size() - 1;
    size_t s = hash & mask;
    while (slots_[s].index != kNone) s = (s + 1) & mask;
    slots_[s] = {static_cast<uint32_t>(hash >> 32), index};
  }
  void grow() {
    slots_.assign(slots_.size() * 2, Slot{});
    for (size_t i = 0; i < words_.size(); ++i) place(hash_word(words_[i]), static_cast<uint32_t>(i));
  }
  std::string_view keep(std::string_view word) {
    if (room_ < word.size()) {
      room_ = std::max(kBlock, word.size());
      blocks_.push_back(std::make_unique_for_overwrite<char[]>(room_));
      free_ = blocks_.back().get();
    }
    if (!word.empty()) std::memcpy(free_, word.data(), word.size());
    const std::string_view kept(free_, word.size());
    free_ += word.size();
    room_ -= word.size();
    bytes_ += word.size();
    return kept;
  }

  std::vector<Slot> slots_;
  std::vector<std::string_view> words_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;
  size_t room_ = 0, bytes_ = 0;
};

// How often each word was seen.
class WordCounts {
 public:
  void add(std::string_view word, uint64_t times = 1) {
    const uint32_t index = map_.insert(word);
    if (index == counts_.size()) counts_.push_back(0);
    counts_[index] += times;
  }
  void add(const WordCounts& other) {
    for (size_t i = 0; i < other.size(); ++i) add(other.word(i), other.count(i));
  }
  size_t size() const { return counts_.size(); }
  std::string_view word(size_t index) const { return map_.word(index); }
  uint64_t count(size_t index) const { return counts_[index]; }

 private:
  WordMap map_;
  std::vector<uint64_t> counts_;
};

}  // namespace longshot
