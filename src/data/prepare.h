// Text to token sets: `longshot prepare`. Memory is bounded whatever the size of the inputs; the result is
// the same bytes whatever the number of threads, and also when the work was stopped and taken up again.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/files.h"
#include "base/options.h"
#include "data/documents.h"
#include "data/token_file.h"
#include "data/tokenizer_training.h"
#include "dist/communicator.h"

namespace longshot {

// How INPUT.. is cut into splits.
enum class SplitBy { kAuto, kDocument, kPosition };
constexpr Choice<SplitBy> kSplitBy[] = {
    {"auto", SplitBy::kAuto}, {"document", SplitBy::kDocument}, {"position", SplitBy::kPosition}};

// What becomes of bytes that are not UTF-8.
enum class InvalidText { kKeep, kReplace, kRefuse };
constexpr Choice<InvalidText> kInvalidText[] = {
    {"keep", InvalidText::kKeep}, {"replace", InvalidText::kReplace}, {"refuse", InvalidText::kRefuse}};

struct PrepareConfig {
  std::vector<std::string> inputs;              // cut by `split`, or one data-bin
  std::string recipe;                           // or a corpus to download
  std::vector<std::string> train, valid, test;  // or given one by one
  std::vector<double> split{0.9, 0.05, 0.05};
  SplitBy split_by = SplitBy::kAuto;
  uint64_t seed = 1;
  std::string tokenizer = "bpe";  // a kind, or a file
  int vocab_size = 0;
  SentencePieceModel sentencepiece_model = SentencePieceModel::kUnigram;
  TextFormat format = TextFormat::kAuto;
  std::string json_field = "text", document_separator;
  InvalidText invalid_utf8 = InvalidText::kKeep;
  bool allow_binary = false, overwrite = false;
  std::string out;

  void fields(Options& o);
};

struct PrepareProgress {
  const char* phase;     // what is being done
  uint64_t done, total;  // the total is 0 where it is not known
  bool bytes = true;     // of the input files; else entries of the vocabulary
};

struct PrepareHooks {
  std::function<bool()> stop = [] { return false; };  // asked by one thread at a time, not always the caller's
  std::function<void(const PrepareProgress&)> progress = [](const PrepareProgress&) {};
  std::function<void(const std::string&)> note = [](const std::string&) {};
  // Ranks that share the encoding: all read the text, each encodes its part, rank 0 writes. Null: this process alone.
  Communicator* world = nullptr;
};

struct PrepareResult {
  bool finished = false;  // false: stopped; the same call goes on
  struct Split {
    std::string name;
    TokenCounts counts;
  };
  std::vector<Split> splits;  // on rank 0
  int vocab_size = 0;
  uint64_t invalid_bytes = 0;  // of the text that are not UTF-8
  std::string first_invalid;   // where the first of them is
};

// Another process that prepares the same `out` at the same time is refused.
PrepareResult prepare(Context& context, const PrepareConfig& config, const PrepareHooks& hooks);

}  // namespace longshot
