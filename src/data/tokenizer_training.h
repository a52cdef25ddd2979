// Tokenizers built from the training text, chunk by chunk on several threads. The result does not depend on
// their number.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/choice.h"
#include "data/bpe_training.h"
#include "data/tokenizer.h"

namespace longshot {

class TokenizerTrainer {
 public:
  virtual ~TokenizerTrainer() = default;
  // Where a text may be cut (as Tokenizer::cut).
  virtual size_t cut(std::string_view text) const = 0;
  // Takes a part of the training text in; each thread has its own number.
  virtual void add(int thread, std::string_view text) = 0;
  // Bytes of training text that are enough; more is not asked for.
  virtual uint64_t enough() const { return UINT64_MAX; }
  virtual std::unique_ptr<Tokenizer> finish(const LearnProgress& progress) = 0;
};

enum class SentencePieceModel { kUnigram, kBpe };
constexpr Choice<SentencePieceModel> kSentencePieceModels[] = {{"unigram", SentencePieceModel::kUnigram},
                                                               {"bpe", SentencePieceModel::kBpe}};

// Those that are made here, without a file.
enum class TokenizerKind { kByte, kWord, kBpe, kSentencePiece };
constexpr Choice<TokenizerKind> kTokenizerKinds[] = {{"byte", TokenizerKind::kByte},
                                                     {"word", TokenizerKind::kWord},
                                                     {"bpe", TokenizerKind::kBpe},
                                                     {"sentencepiece", TokenizerKind::kSentencePiece}};

struct TokenizerOptions {
  TokenizerKind kind = TokenizerKind::kBpe;
  int vocab_size = 0;  // 0: all words; 8192 for the others
  SentencePieceModel sentencepiece_model = SentencePieceModel::kUnigram;
};

// REQUIRES: a kind that is learnt from text, not kByte.
std::unique_ptr<TokenizerTrainer> make_trainer(const TokenizerOptions& options, int threads);

}  // namespace longshot
