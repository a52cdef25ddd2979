#include "generate/score.h"

#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "generate/text_stream.h"
#include "model/inference.h"

namespace longshot {

double ScoredText::loss() const {
  double sum = 0;
  for (const ScoredToken& t : tokens) sum += t.loss;
  return sum / static_cast<double>(tokens.size());
}

double ScoredText::bits_per_byte() const {
  return loss() * static_cast<double>(tokens.size()) / static_cast<double>(bytes) / std::log(2.0);
}

ScoredText score_text(Context& context, LoadedModel& loaded, std::string_view text, const Watch& watch) {
  const Tokenizer& tokenizer = loaded.required_tokenizer();
  const std::vector<int32_t> ids = tokenizer.encode(text, watch);
  require(!ids.empty(), "there is no token in the text to score");
  const auto length = static_cast<int64_t>(ids.size());
  const int64_t reach = loaded.model->position().max_length();
  require(length <= reach, "the text has {} tokens, but position method '{}' is not defined beyond {}", length,
          loaded.info.model.position, reach);
  for (const int32_t id : ids)
    require(id >= 0 && id < loaded.info.model.vocab, "id {} is outside the vocabulary of {}", id,
            loaded.info.model.vocab);

  std::vector<int32_t> inputs{tokenizer.start_id()};
  inputs.insert(inputs.end(), ids.begin(), ids.end() - 1);
  std::vector<float> losses(ids.size());
  const double start = seconds_now();
  Inference inference(context, *loaded.model, {.sequences = 1, .tokens = length});
  inference.score({.inputs = inputs, .length = length, .first_key = {}, .watch = watch}, ids, 0, losses);

  ScoredText scored{.bytes = static_cast<int64_t>(text.size()), .train_length = loaded.info.model.length};
  scored.seconds = seconds_now() - start;
  TextStream texts(tokenizer, {}, {});
  for (size_t i = 0; i < ids.size(); ++i) scored.tokens.push_back({ids[i], texts.push(ids[i]), losses[i]});
  scored.tokens.back().text += texts.finish();
  return scored;
}

}  // namespace longshot
