// How a model takes a text: what every token of it costs.
#pragma once
#include <string>
#include <vector>

#include "base/watch.h"
#include "run/loaded_model.h"

namespace longshot {

struct ScoredToken {
  int32_t id = 0;
  std::string text{};  // what it adds to the text before it; a character stands with the token that completes it
  float loss = 0;      // -ln p given all tokens before it, nats
};

struct ScoredText {
  std::vector<ScoredToken> tokens{};
  int64_t bytes = 0;  // of the text
  int64_t train_length = 0;
  double seconds = 0;

  double loss() const;           // nats per token
  double bits_per_byte() const;  // of the text as it was given
};

// The whole text in one window, behind the tokenizer's start id; memory is linear in its length. A text longer than the
// position method reaches is refused with both numbers.
ScoredText score_text(Context& context, LoadedModel& loaded, std::string_view text, const Watch& watch = {});

}  // namespace longshot
