#include "data/bpe_training.h"

#include <algorithm>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/rng.h"

namespace longshot {
namespace {

constexpr int64_t kLeast = 2;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct KeyHash {
  size_t operator()(uint64_t key) const { return mix64(key); }
};

struct Pair {
  int64_t count = 0;
  std::vector<uint32_t> words;  // that may hold it, some perhaps twice
};

struct Candidate {
  int64_t count;
  uint64_t key;
  // The top of the heap: most frequent, then smallest ids.
  bool operator<(const Candidate& other) const { return count != other.count ? count < other.count : key > other.key; }
};

class Learner {
 public:
  Learner(const WordCounts& pieces, size_t tokens, const LearnProgress& progress)
      : tokens_(tokens), progress_(progress) {
    // Sorted, so that the order of arrival, which threads decide, does not matter.
    std::vector<uint32_t> order(pieces.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, [&](uint32_t a, uint32_t b) { return pieces.word(a) < pieces.word(b); });
    for (const uint32_t i : order) {
      if (pieces.word(i).size() < 2) continue;
      if (words_.size() % 4096 == 0) progress_(0, tokens_);
      counts_.push_back(static_cast<int64_t>(pieces.count(i)));
      auto& word = words_.emplace_back();
      for (const char c : pieces.word(i)) word.push_back(static_cast<unsigned char>(c));
      for (size_t p = 0; p + 1 < word.size(); ++p) {
        Pair& pair = pairs_[pair_key(word[p], word[p + 1])];
        pair.count += counts_.back();
        pair.words.push_back(static_cast<uint32_t>(words_.size() - 1));
      }
    }
    for (const auto& [key, pair] : pairs_) heap_.push({pair.count, key});
  }

  std::vector<Merge> learn() {
    WordMap known;
    for (int byte = 0; byte < 256; ++byte) known.insert(std::string(1, static_cast<char>(byte)));
    std::vector<Merge> learnt;
    while (known.size() < 256 + tokens_ && !heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      Pair& pair = pairs_[best.key];
      if (best.count != pair.count) {
        if (pair.count >= kLeast) heap_.push({pair.count, best.key});
        continue;
      }
      if (best.count < kLeast) break;
      const auto left = static_cast<int32_t>(best.key >> 32), right = static_cast<int32_t>(best.key & 0xFFFFFFFF);
      const std::string text =
          std::string(known.word(static_cast<size_t>(left))) + std::string(known.word(static_cast<size_t>(right)));
      learnt.push_back({left, right, static_cast<int32_t>(known.insert(text))});
      join(learnt.back(), std::move(pair.words));
      if (learnt.size() % 16 == 0) progress_(known.size() - 256, tokens_);
      pairs_.erase(best.key);
    }
    return learnt;
  }

 private:
  void join(const Merge& merge, std::vector<uint32_t> words) {
    std::ranges::sort(words);
    const auto repeated = std::ranges::unique(words);
    words.erase(repeated.begin(), repeated.end());
    grown_.clear();
    for (const uint32_t w : words) {
      std::vector<int32_t>& word = words_[w];
      size_t to = 0;
      for (size_t from = 0; from < word.size();) {
        if (from + 1 < word.size() && word[from] == merge.left && word[from + 1] == merge.right) {
          if (to > 0) {
            change(word[to - 1], merge.left, w, -1);
            change(word[to - 1], merge.joined, w, +1);
          }
          if (from + 2 < word.size()) {
            change(merge.right, word[from + 2], w, -1);
            change(merge.joined, word[from + 2], w, +1);
          }
          word[to++] = merge.joined;
          from += 2;
        } else {
          word[to++] = word[from++];
        }
      }
      word.resize(to);
    }
    for (const uint64_t key : grown_) heap_.push({pairs_[key].count, key});
  }

  void change(int32_t left, int32_t right, uint32_t word, int64_t sign) {
    const uint64_t key = pair_key(left, right);
    Pair& pair = pairs_[key];
    pair.count += sign * counts_[word];
    if (sign > 0) {
      pair.words.push_back(word);
      grown_.insert(key);
    }
  }

  size_t tokens_;
  const LearnProgress& progress_;
  std::vector<std::vector<int32_t>> words_;
  std::vector<int64_t> counts_;
  std::unordered_map<uint64_t, Pair, KeyHash> pairs_;
  std::unordered_set<uint64_t, KeyHash> grown_;
  std::priority_queue<Candidate> heap_;
};

}  // namespace

std::vector<Merge> learn_merges(const WordCounts& pieces, size_t tokens, const LearnProgress& progress) {
  return Learner(pieces, tokens, progress).learn();
}

}  // namespace longshot
