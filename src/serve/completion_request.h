// What a client of /v1/completions asks for.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "generate/continuation.h"

namespace longshot {

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  std::vector<Prompt> prompts{};
  std::optional<std::string> model{};
  GenerationConfig config{};  // `samples` texts of every prompt
  bool has_seed = false;
  std::optional<int64_t> logprobs{};  // likeliest tokens to name beside each
  bool stream = false, include_usage = false;

  int64_t texts() const { return static_cast<int64_t>(prompts.size()) * config.samples; }
};

// From a request's body. Error(kUsage) that names the field. Unknown fields are refused; those of OpenAI's that change
// nothing here may stand with the value that asks for nothing.
CompletionRequest parse_completion(std::string_view body);

struct TokenizeRequest {
  std::string text;
};
TokenizeRequest parse_tokenize(std::string_view body);  // {"content": TEXT} or {"prompt": TEXT}

struct DetokenizeRequest {
  std::vector<int32_t> ids;
};
DetokenizeRequest parse_detokenize(std::string_view body);  // {"tokens": [..]}

}  // namespace longshot
