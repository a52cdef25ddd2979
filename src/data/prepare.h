// Text to token sets: `longshot prepare`. Memory is bounded whatever the size of the inputs; the result is
// the same bytes whatever the number of threads, and also when the work was stopped and taken up again.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/files.h"
#include "base/options.h"
#include "data/token_file.h"

namespace longshot {

constexpr std::array<const char*, 3> kSplitNames{"train", "valid", "test"};

struct PrepareConfig {
  std::vector<std::string> inputs;              // cut by `split`, or one data-bin
  std::string recipe;                           // or a corpus to download
  std::vector<std::string> train, valid, test;  // or given one by one
  std::vector<double> split{0.9, 0.05, 0.05};
  std::string split_by = "auto";
  uint64_t seed = 1;
  std::string tokenizer = "word";
  int vocab_size = 0;
  std::string sentencepiece_model = "unigram";
  std::string format = "auto", json_field = "text", document_separator;
  bool allow_binary = false, overwrite = false;
  std::string out;

  void fields(Options& o);
};

struct PrepareProgress {
  const char* phase;            // what is being done
  uint64_t bytes, total_bytes;  // of the input files; the total is 0 where it is not known
};

struct PrepareHooks {
  std::function<bool()> stop = [] { return false; };
  std::function<void(const PrepareProgress&)> progress = [](const PrepareProgress&) {};
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct PrepareResult {
  bool finished = false;  // false: stopped; the same call goes on
  std::array<TokenCounts, 3> splits;
  int vocab_size = 0;
};

PrepareResult prepare(Context& context, const PrepareConfig& config, const PrepareHooks& hooks);

}  // namespace longshot
