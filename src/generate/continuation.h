// One text that continues a prompt, token by token, from the model's distributions, whoever computes these.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generate/sampling.h"
#include "generate/text_stream.h"
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
  int64_t context = 0;              // a token sees so many at most, itself among them; 0: all

  void fields(Options& o);
  void validate() const;
};

struct TokenChance {
  int32_t id = 0;
  float log_p = 0;  // of the model itself, before sampling changed it
};

struct MadeToken {
  TokenChance token{};
  std::vector<TokenChance> likeliest{};  // as many as were asked for, the likeliest first
  std::string text{};                    // what has become certain with it; often its own, sometimes none or more
};

struct TextRequest {
  std::vector<int32_t> prompt{};  // ids behind the tokenizer's start id, which is put in front
  GenerationConfig config{};      // of one sample
  int64_t likeliest = 0;          // tokens to name beside each that is made
  std::function<void(const MadeToken&)> on_token = [](const MadeToken&) {};
  // Once, with the text that was held back until then.
  std::function<void(Ended, const std::string& text)> on_end = [](Ended, const std::string&) {};
  std::function<bool()> should_stop = [] { return false; };
};

// The id behind which no text of a document follows; none where the tokenizer has only line ends.
std::optional<int32_t> end_of_document(const Tokenizer& tokenizer);

class Continuation {
 public:
  // Error(kUsage) for options out of range, and for a length that the position method does not reach.
  Continuation(const LoadedModel& loaded, TextRequest request);

  const TextRequest& request() const { return request_; }
  std::span<const int32_t> inputs() const { return std::span(ids_).first(inputs_); }  // the start id and the prompt
  int64_t reach() const { return static_cast<int64_t>(inputs_) + request_.config.max_tokens; }
  bool is_open() const { return open_; }
  int32_t last() const { return ids_.back(); }

  // Draws the next token from ln p of every id.
  void take(std::span<const float> log_p);
  void end(Ended ended);

 private:
  TextRequest request_;
  std::optional<int32_t> end_;
  std::vector<int32_t> ids_;  // the start id, the prompt, what was made
  size_t inputs_;
  TextStream stream_;
  bool open_ = true;
};

}  // namespace longshot
