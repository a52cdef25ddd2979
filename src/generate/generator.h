// Text that continues a prompt, on top of a cache of keys: several samples at once, each as if it were alone.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "generate/continuation.h"

namespace longshot {

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

// `prompt` are ids behind the tokenizer's start id, which is put in front. A length that the position method does not reach is
// refused before anything runs. A sample's text depends on the seed, its number, the prompt and the options, and on nothing
// else.
Generated generate(Context& context, LoadedModel& loaded, std::span<const int32_t> prompt,
                   const GenerationConfig& config, const GenerationCallbacks& callbacks = {});

}  // namespace longshot
