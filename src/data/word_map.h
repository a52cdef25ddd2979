// A hash map from words to dense indices 0, 1, 2, .. in order of arrival. Open addressing; words are copied
// into blocks that never move.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace longshot {

// A word's first 8 bytes (fewer: padded with zeros), and a hash of all of it.
struct WordKey {
  uint64_t head, hash;

  explicit WordKey(std::string_view word) : WordKey(word, word.data() + word.size()) {}
  // Bytes up to `end` may be read: with 16 of them from the word's start on, most words take no unforeseen branch.
  WordKey(std::string_view word, const char* end) {
    const char* p = word.data();
    const size_t n = word.size(), first = std::min<size_t>(n, 16);
    char copy[16] = {};
    if (end - p < 16) p = n > 0 ? static_cast<const char*>(std::memcpy(copy, p, first)) : copy;
    head = load(p) & kFirst[std::min<size_t>(n, 8)];
    const uint64_t next = load(p + 8) & kFirst[first > 8 ? first - 8 : 0];
    hash = fold(head ^ kB, next ^ kA ^ n);
    if (n <= 16) return;
    for (size_t i = 16; i + 8 < n; i += 8) hash = fold(hash ^ load(p + i), kB);
    hash = fold(hash ^ load(p + n - 8), kA);
  }

 private:
  static constexpr uint64_t kA = 0xa0761d6478bd642f, kB = 0xe7037ed1a0b428db;
  static constexpr std::array<uint64_t, 9> kFirst = [] {  // masks of the first n bytes
    std::array<uint64_t, 9> masks{};
    for (size_t n = 1; n < masks.size(); ++n) masks[n] = masks[n - 1] << 8 | 0xFF;
    return masks;
  }();
  static uint64_t load(const char* p) {
    uint64_t value = 0;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  static uint64_t fold(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
};

class WordMap {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  WordMap() : slots_(1024) {}

  size_t size() const { return words_.size(); }
  std::string_view word(size_t index) const { return words_[index]; }

  uint32_t find(std::string_view word) const { return find(word, WordKey(word)); }
  // REQUIRES: key is WordKey(word).
  uint32_t find(std::string_view word, const WordKey& key) const {
    const size_t mask = slots_.size() - 1;
    const uint32_t check = check_of(word, key);
    for (size_t s = key.hash & mask;; s = (s + 1) & mask) {
      const Slot& slot = slots_[s];
      if (slot.index == kNone) return kNone;
      if (slot.head == key.head && slot.check == check && (word.size() <= 8 || words_[slot.index] == word))
        return slot.index;
    }
  }
  // A look-up waits for memory up to three times: for the slot, for the entry of a word longer than the slot's eight
  // bytes, and for its text. These ask for it ahead; each expects the one before to have arrived.
  void prefetch_slot(const WordKey& key) const { __builtin_prefetch(&slots_[key.hash & (slots_.size() - 1)]); }
  // Null where no entry will be needed.
  const std::string_view* prefetch_entry(std::string_view word, const WordKey& key) const {
    const Slot& slot = slots_[key.hash & (slots_.size() - 1)];
    if (word.size() <= 8 || slot.index == kNone || slot.head != key.head) return nullptr;
    const std::string_view* entry = &words_[slot.index];
    __builtin_prefetch(entry);
    return entry;
  }

  // The index of `word`, new or known.
  uint32_t insert(std::string_view word) { return insert(word, WordKey(word)); }
  uint32_t insert(std::string_view word, const WordKey& key) {
    if (const uint32_t index = find(word, key); index != kNone) return index;
    if ((words_.size() + 1) * 2 > slots_.size()) grow();
    words_.push_back(keep(word));
    place(word, key, static_cast<uint32_t>(words_.size() - 1));
    return static_cast<uint32_t>(words_.size() - 1);
  }

  void clear() { *this = WordMap(); }

 private:
  // A word of up to 8 bytes is known by its slot alone: one place in memory is touched.
  struct Slot {
    uint64_t head = 0;
    uint32_t check = 0;  // the length, where it is at most 8; else a part of the hash with the top bit set
    uint32_t index = kNone;
  };
  static constexpr size_t kBlock = 1 << 18;

  static uint32_t check_of(std::string_view word, const WordKey& key) {
    return word.size() <= 8 ? static_cast<uint32_t>(word.size()) : static_cast<uint32_t>(key.hash >> 32) | 0x80000000;
  }
  void place(std::string_view word, const WordKey& key, uint32_t index) {
    const size_t mask = slots_.size() - 1;
    size_t s = key.hash & mask;
    while (slots_[s].index != kNone) s = (s + 1) & mask;
    slots_[s] = {key.head, check_of(word, key), index};
  }
  void grow() {
    slots_.assign(slots_.size() * 2, Slot{});
    for (size_t i = 0; i < words_.size(); ++i) place(words_[i], WordKey(words_[i]), static_cast<uint32_t>(i));
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
    return kept;
  }

  std::vector<Slot> slots_;
  std::vector<std::string_view> words_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;
  size_t room_ = 0;
};

// Words on their way into a map: while one waits for memory, the next ones are already being fetched.
class WordQueue {
 public:
  static constexpr size_t kAtOnce = 32;

  // True when the queue is full and must be emptied. Bytes up to `end` may be read.
  bool push(std::string_view word, const char* end, const WordMap& map) {
    const Entry& entry = entries_[count_++] = {word, WordKey(word, end)};
    map.prefetch_slot(entry.key);
    return count_ == kAtOnce;
  }
  // f(word, key) for each, in order.
  template <class F>
  void empty(const WordMap& map, F&& f) {
    std::array<const std::string_view*, kAtOnce> kept;
    for (size_t i = 0; i < count_; ++i) kept[i] = map.prefetch_entry(entries_[i].word, entries_[i].key);
    for (size_t i = 0; i < count_; ++i) {
      if (kept[i]) __builtin_prefetch(kept[i]->data());
    }
    for (size_t i = 0; i < count_; ++i) f(entries_[i].word, entries_[i].key);
    count_ = 0;
  }

 private:
  struct Entry {
    std::string_view word;
    WordKey key{{}};
  };
  std::array<Entry, kAtOnce> entries_;
  size_t count_ = 0;
};

// How often each word was seen.
class WordCounts {
 public:
  void add(std::string_view word, uint64_t times = 1) { add(word, WordKey(word), times); }
  void add(const WordCounts& other) {
    WordQueue queue;
    size_t done = 0;
    const auto take = [&](std::string_view word, const WordKey& key) { add(word, key, other.count(done++)); };
    for (size_t i = 0; i < other.size(); ++i) {
      const std::string_view word = other.word(i);
      if (queue.push(word, word.data() + word.size(), map_)) queue.empty(map_, take);
    }
    queue.empty(map_, take);
  }
  // Counts `word`, sooner or later; flush() at the end. Bytes up to `end` may be read.
  void add_later(std::string_view word, const char* end) {
    if (queue_.push(word, end, map_)) flush();
  }
  // REQUIRED before the memory of words given to add_later() goes away, and before anything is read.
  void flush() {
    queue_.empty(map_, [&](std::string_view word, const WordKey& key) { add(word, key, 1); });
  }
  size_t size() const { return counts_.size(); }
  std::string_view word(size_t index) const { return map_.word(index); }
  uint64_t count(size_t index) const { return counts_[index]; }

 private:
  void add(std::string_view word, const WordKey& key, uint64_t times) {
    const uint32_t index = map_.insert(word, key);
    if (index == counts_.size()) counts_.push_back(0);
    counts_[index] += times;
  }

  WordMap map_;
  WordQueue queue_;
  std::vector<uint64_t> counts_;
};

}  // namespace longshot
