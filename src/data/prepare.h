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
#include "data/token_file.h"

namespace longshot {

struct PrepareConfig {
  std::vector<std::string> inputs;              // cut by `split`, or one data-bin
  std::string recipe;                           // or a corpus to download
  std::vector<std::string> train, valid, test;  // or given one by one
  std::vector<double> split{0.9, 0.05, 0.05};
  std::string split_by = "auto";
  uint64_t seed = 1;
  std::string tokenizer = "bpe";
  int vocab_size = 0;
  std::string sentencepiece_model = "unigram";
  std::string format = "auto", json_field = "text", document_separator;
  std::string invalid_utf8 = "keep";
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
  std::function<bool()> stop = [] { return false; };
  std::function<void(const PrepareProgress&)> progress = [](const PrepareProgress&) {};
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct PrepareResult {
  bool finished = false;  // false: stopped; the same call goes on
  struct Split {
    std::string name;
    TokenCounts counts;
  };
  std::vector<Split> splits;
  int vocab_size = 0;
  uint64_t invalid_bytes = 0;  // of the text that are not UTF-8
  std::string first_invalid;   // where the first of them is
};

// Another process that prepares the same `out` at the same time is refused.
PrepareResult prepare(Context& context, const PrepareConfig& config, const PrepareHooks& hooks);

}  // namespace longshot
