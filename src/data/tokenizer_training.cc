#include "data/tokenizer_training.h"

#include "base/error.h"
#include "data/tokenizers.h"
#include "data/utf8.h"

namespace longshot {
namespace {

class WordTrainer : public TokenizerTrainer {
 public:
  WordTrainer(int vocab_size, int threads) : vocab_size_(vocab_size), counts_(static_cast<size_t>(threads)) {}
  size_t cut(std::string_view text) const override { return cut_behind_space(text); }
  void add(int thread, std::string_view text) override {
    WordCounts& counts = counts_[static_cast<size_t>(thread)];
    const char *p = text.data(), *end = p + text.size();
    while (p < end) {
      if (const uint32_t space = space_length(p, end)) {
        p += space;
      } else {
        const char* const word = p;
        p = word_end(p, end);
        counts.add({word, static_cast<size_t>(p - word)});
      }
    }
  }
  std::unique_ptr<Tokenizer> finish() override {
    for (size_t t = 1; t < counts_.size(); ++t) {
      counts_[0].add(counts_[t]);
      counts_[t] = WordCounts();
    }
    require(counts_[0].size() > 0, "the training text has no words");
    return word_tokenizer(make_dict(counts_[0], vocab_size_), "the dictionary made of the training text");
  }

 private:
  int vocab_size_;
  std::vector<WordCounts> counts_;
};

}  // namespace

bool is_trained_kind(const std::string& kind) { return kind == "word"; }

std::unique_ptr<TokenizerTrainer> make_trainer(const TokenizerOptions& options, int threads) {
  if (options.kind == "word") return std::make_unique<WordTrainer>(options.vocab_size, threads);
  fail_usage("--tokenizer {}: not a kind that is built from text", options.kind);
}

}  // namespace longshot
