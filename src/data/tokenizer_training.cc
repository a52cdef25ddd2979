#include "data/tokenizer_training.h"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cassert>

#include "base/error.h"
#include "data/bpe_training.h"
#include "data/gpt2_split.h"
#include "data/hf_tokenizer.h"
#include "data/pretokenizer.h"
#include "data/tokenizers.h"
#include "data/utf8.h"

namespace longshot {
namespace {

// Adds all to the first.
void merge_counts(std::vector<WordCounts>& counts, const LearnProgress& progress) {
  for (size_t t = 1; t < counts.size(); ++t) {
    progress(0, 0);
    counts[0].add(counts[t]);
    counts[t] = WordCounts();
  }
}

class WordTrainer : public TokenizerTrainer {
 public:
  WordTrainer(int vocab_size, int threads) : vocab_size_(vocab_size), counts_(static_cast<size_t>(threads)) {}
  size_t cut(std::string_view text) const override { return cut_behind_space(text); }
  void add(int thread, std::string_view text) override {
    WordCounts& counts = counts_[static_cast<size_t>(thread)];
    const char* const end = text.data() + text.size();
    scan_words(
        text, [&](std::string_view word) { counts.add_later(word, end); }, [](const char*) {});
    counts.flush();
  }
  std::unique_ptr<Tokenizer> finish(const LearnProgress& progress) override {
    merge_counts(counts_, progress);
    require(counts_[0].size() > 0, "the training text has no words");
    return word_tokenizer(make_dict(counts_[0], vocab_size_), "the dictionary made of the training text");
  }

 private:
  int vocab_size_;
  std::vector<WordCounts> counts_;
};

constexpr int kDefaultVocabulary = 8192;

class BpeTrainer : public TokenizerTrainer {
 public:
  BpeTrainer(int vocab_size, int threads) : counts_(static_cast<size_t>(threads)) {
    const int size = vocab_size > 0 ? vocab_size : kDefaultVocabulary;
    require_usage(size > 257,
                  "--vocab-size {}: byte-level BPE has 256 bytes and <|endoftext|> before anything is joined", size);
    tokens_ = static_cast<size_t>(size) - 257;
  }
  size_t cut(std::string_view text) const override { return Pretokenizer::gpt2().cut(text); }
  uint64_t enough() const override { return uint64_t{512} << 20; }
  void add(int thread, std::string_view text) override {
    WordCounts& counts = counts_[static_cast<size_t>(thread)];
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
      const char* next = gpt2::piece_end(p, end);
      // Longer pieces are no words; they would only take memory.
      if (next - p <= kLongest) counts.add_later({p, static_cast<size_t>(next - p)}, end);
      p = next;
    }
    counts.flush();
  }
  std::unique_ptr<Tokenizer> finish(const LearnProgress& progress) override {
    merge_counts(counts_, progress);
    return hf_tokenizer(trained_bpe_json(learn_merges(counts_[0], tokens_, progress)),
                        "the BPE learnt from the training text");
  }

 private:
  static constexpr ptrdiff_t kLongest = 256;
  size_t tokens_;
  std::vector<WordCounts> counts_;
};

class LineIterator : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

class SentencePieceTrainer : public TokenizerTrainer {
 public:
  SentencePieceTrainer(TokenizerOptions options, int threads)
      : options_(std::move(options)), lines_(static_cast<size_t>(threads)) {
    if (options_.vocab_size == 0) options_.vocab_size = kDefaultVocabulary;
    require_usage(options_.vocab_size > 300,
                  "--vocab-size {}: SentencePiece has 256 bytes and 3 special pieces before any other",
                  options_.vocab_size);
  }
  size_t cut(std::string_view text) const override { return cut_behind_space(text); }
  uint64_t enough() const override { return 24u << 20; }  // the library keeps it in memory many times over
  void add(int thread, std::string_view text) override {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string line(text.substr(0, std::min(end, kLongest)));
      std::erase(line, '\0');  // the library refuses it
      if (!line.empty()) lines_[static_cast<size_t>(thread)].push_back(std::move(line));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  // The library's own learning, which may take minutes, cannot be stopped.
  std::unique_ptr<Tokenizer> finish(const LearnProgress& progress) override {
    std::vector<std::string> lines;
    for (std::vector<std::string>& some : lines_) {
      std::ranges::move(some, std::back_inserter(lines));
      some.clear();
    }
    std::ranges::sort(lines);  // the threads decided their order
    require(!lines.empty(), "the training text is empty");
    progress(0, 0);
    LineIterator iterator(lines);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        {{"model_type", name_of(kSentencePieceModels, options_.sentencepiece_model)},
         {"vocab_size", fmt::format("{}", options_.vocab_size)},
         {"hard_vocab_limit", options_.sentencepiece_model == SentencePieceModel::kUnigram ? "false" : "true"},
         {"byte_fallback", "true"},
         {"normalization_rule_name", "identity"},
         {"remove_extra_whitespaces", "false"},
         {"max_sentence_length", fmt::format("{}", kLongest + 1)},
         {"num_threads", "1"},
         {"minloglevel", "2"}},
        &iterator, &model);
    require(status.ok(), "SentencePiece cannot learn a vocabulary of {}: {}", options_.vocab_size, status.ToString());
    return sentencepiece_tokenizer(std::move(model), "the SentencePiece model learnt from the training text");
  }

 private:
  static constexpr size_t kLongest = 1 << 16;
  TokenizerOptions options_;
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace

std::unique_ptr<TokenizerTrainer> make_trainer(const TokenizerOptions& options, int threads) {
  switch (options.kind) {
    case TokenizerKind::kWord:
      return std::make_unique<WordTrainer>(options.vocab_size, threads);
    case TokenizerKind::kBpe:
      return std::make_unique<BpeTrainer>(options.vocab_size, threads);
    case TokenizerKind::kSentencePiece:
      return std::make_unique<SentencePieceTrainer>(options, threads);
    case TokenizerKind::kByte:
      break;
  }
  assert(false);
  return nullptr;
}

}  // namespace longshot
