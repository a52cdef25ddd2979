// Text that continues a prompt, on top of a cache of keys: several samples at once, each as if it were alone.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generate/sampling.h"
#include "run/loaded_model.h"

namespace longshot {

enum class Ended { kLength, kStop, kDocument, kAsked };
constexpr Choice<Ended> kEndings[] = {{"length", Ended::kLength},
                                      {"stop", Ended::kStop},
                                      {"end of document", Ended::kDocument},
                                      {"asked", Ended::kAsked}};

struct GenerationConfig {
  SamplingConfig sampling{};
  int64_t max_tokens = 200;
  int64_t samples = 1;
  std::vector<std::string> stop{};  // text that ends a sample, and is no part of it
  bool ignore_end = false;          // go on behind the id that ends a document

  void fields(Options& o);
  void validate() const;
};

struct Sample {
  std::vector<int32_t> ids{};
  std::vector<float> log_p{};  // ln p of each, of the model itself, before sampling changed it
  std::string text{};          // bytes of a model of bytes may be no UTF-8
  Ended ended = Ended::kLength;
};

struct Generated {
  std::vector<Sample> samples{};
  double seconds = 0, first_seconds = 0;  // in all; until the first token
};

struct GenerationCallbacks {
  // Text of a sample as far as it is certain.
  std::function<void(int64_t sample, const std::string& text)> on_text = [](int64_t, const std::string&) {};
  std::function<bool()> should_stop = [] { return false; };
};

// The id behind which no text of a document follows; none where the tokenizer has only line ends.
std::optional<int32_t> end_of_document(const Tokenizer& tokenizer);

// `prompt` are ids behind the tokenizer's start id, which is put in front. A length that the position method does not reach is
// refused before anything runs. A sample's text depends on the seed, its number, the prompt and the options, and on nothing
// else.
Generated generate(Context& context, LoadedModel& loaded, std::span<const int32_t> prompt,
                   const GenerationConfig& config, const GenerationCallbacks& callbacks = {});

}  // namespace longshot
