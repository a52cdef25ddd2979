#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "data/token_set_dir.h"
#include "data/tokenizers.h"
#include "data/utf8.h"

namespace longshot {
namespace {

// fairseq's first ids; they are not in the file.
constexpr std::string_view kSpecial[] = {"<s>", "<pad>", "</s>", "<unk>"};
constexpr int32_t kEnd = 2, kUnknown = 3;
constexpr std::string_view kOverwrite = " #fairseq:overwrite";
constexpr size_t kMultiple = 8;
constexpr size_t kLongestWord = 1 << 16;  // bytes; longer ones are unknown

bool is_special(std::string_view word) { return std::ranges::find(kSpecial, word) != std::ranges::end(kSpecial); }

std::string_view without_trailing_space(std::string_view line) {
  while (!line.empty() && space_of(line.back()) == Space::kYes) line.remove_suffix(1);
  return line;
}

class WordEncoder : public Encoder {
 public:
  explicit WordEncoder(const WordMap& words) : words_(words) {}
  void append(std::string_view text, std::vector<int32_t>& ids) override {
    const auto look_up = [&](std::string_view word, const WordKey& key) {
      const uint32_t id = words_.find(word, key);
      ids.push_back(id == WordMap::kNone ? kUnknown : static_cast<int32_t>(id));
    };
    const char* const end = text.data() + text.size();
    scan_words(
        text,
        [&](std::string_view word) {
          if (queue_.push(word, end, words_)) queue_.empty(words_, look_up);
        },
        [&](const char* p) {
          if (*p != '\n' && (*p != '\r' || (p + 1 < end && p[1] == '\n'))) return;
          queue_.empty(words_, look_up);
          ids.push_back(kEnd);
        });
    queue_.empty(words_, look_up);
  }

 private:
  const WordMap& words_;
  WordQueue queue_;
};

class WordTokenizer : public Tokenizer {
 public:
  WordTokenizer(std::string dict, const std::string& origin) : Tokenizer(kWordTokenizerFile, std::move(dict)) {
    for (const std::string_view word : kSpecial) words_.insert(word);
    size_t number = 0;
    for (std::string_view rest = file(); !rest.empty();) {
      const size_t newline = std::min(rest.find('\n'), rest.size());
      add_line(rest.substr(0, newline), origin, ++number);
      rest.remove_prefix(std::min(newline + 1, rest.size()));
    }
    require(words_.size() > std::size(kSpecial), "{}: the dictionary has no words", origin);
  }
  std::string_view name() const override { return "word"; }
  int vocab_size() const override { return static_cast<int>(words_.size()); }
  int32_t start_id() const override { return kEnd; }
  std::unique_ptr<Encoder> make_encoder() const override { return std::make_unique<WordEncoder>(words_); }
  void end_document(char last, std::vector<int32_t>& ids) const override {
    if (last != '\n' && last != '\r') ids.push_back(kEnd);
  }
  size_t cut(std::string_view text) const override { return cut_behind_space(text); }
  std::string decode(std::span<const int32_t> ids) const override {
    check(ids);
    std::string text;
    for (const int32_t id : ids) {
      if (id == kEnd) {
        text += '\n';
        continue;
      }
      if (!text.empty() && text.back() != '\n') text += ' ';
      text += words_.word(static_cast<size_t>(id));
    }
    return text;
  }
  std::string token(int32_t id) const override {
    check({&id, 1});
    return std::string(words_.word(static_cast<size_t>(id)));
  }

 private:
  // "word count", cut at the last space.
  void add_line(std::string_view line, const std::string& origin, size_t number) {
    line = without_trailing_space(line);
    const bool overwrite = line.ends_with(kOverwrite);
    if (overwrite) line.remove_suffix(kOverwrite.size());
    const size_t space = line.rfind(' ');
    require(space != std::string_view::npos && space > 0,
            "{}, line {}: '{}' is not 'word count'. Is it a fairseq dict.txt?", origin, number, line.substr(0, 80));
    const std::string_view word = line.substr(0, space), count = line.substr(space + 1);
    require(word.size() <= kLongestWord, "{}, line {}: a word of {} bytes; at most {} are taken", origin, number,
            word.size(), kLongestWord);
    uint64_t value = 0;
    const auto [rest, error] = std::from_chars(count.data(), count.data() + count.size(), value);
    require(error == std::errc() && rest == count.data() + count.size(), "{}, line {}: '{}' is not a count", origin,
            number, count.substr(0, 80));
    require(words_.size() < INT32_MAX, "{}: more than {} words", origin, INT32_MAX);
    const size_t before = words_.size();
    const bool known = words_.insert(word) < before;
    require(!known || overwrite, "{}, line {}: the word '{}' stands there a second time", origin, number,
            word.substr(0, 80));
    // fairseq gives an overwritten word a further id, and its old id keeps the name.
    require(!known, "{}, line {}: '#fairseq:overwrite' of '{}' is not supported", origin, number, word.substr(0, 80));
  }

  WordMap words_;
};

}  // namespace

std::unique_ptr<Tokenizer> word_tokenizer(std::string dict, const std::string& origin) {
  return std::make_unique<WordTokenizer>(std::move(dict), origin);
}

std::string make_dict(const WordCounts& counts, int vocab_size) {
  // By count, then by word. A word's first eight bytes, the first one highest, decide nearly always: then its text,
  // which lies anywhere in memory, is not looked at.
  struct Entry {
    uint64_t count, head;
    uint32_t index;
  };
  std::vector<Entry> order;
  order.reserve(counts.size());
  for (uint32_t i = 0; i < counts.size(); ++i) {
    if (is_special(counts.word(i)) || counts.word(i).size() > kLongestWord) continue;
    order.push_back({counts.count(i), __builtin_bswap64(WordKey(counts.word(i)).head), i});
  }
  std::ranges::sort(order, [&](const Entry& a, const Entry& b) {
    if (a.count != b.count) return a.count > b.count;
    if (a.head != b.head) return a.head < b.head;
    return counts.word(a.index) < counts.word(b.index);
  });
  const size_t special = std::size(kSpecial);
  if (vocab_size > 0) {
    require_usage(static_cast<size_t>(vocab_size) > special,
                  "--vocab-size {}: a word vocabulary needs more than its {} special entries", vocab_size, special);
    order.resize(std::min(order.size(), static_cast<size_t>(vocab_size) - special));
  }
  std::string dict;
  for (const Entry& e : order) fmt::format_to(std::back_inserter(dict), "{} {}\n", counts.word(e.index), e.count);
  for (size_t made_up = 0; (special + order.size() + made_up) % kMultiple != 0; ++made_up) {
    fmt::format_to(std::back_inserter(dict), "madeupword{:04} 0\n", made_up);
  }
  return dict;
}

}  // namespace longshot
