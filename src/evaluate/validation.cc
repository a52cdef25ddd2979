#include "evaluate/validation.h"

#include <algorithm>
#include <numeric>

namespace longshot {

std::optional<double> validation_loss(Context& context, Transformer& model, const Stretch& stretch,
                                      const std::function<bool()>& should_stop, Communicator* world) {
  const bool shared = world && !world->is_alone();
  if (!shared && should_stop()) return std::nullopt;
  ScoreOptions options{.document_mask = model.config().document_mask, .world = world};
  options.should_stop = should_stop;
  const Scores scores = score_stream(context, model, stretch, options);
  if (!scores.finished) return std::nullopt;
  double sum = std::accumulate(scores.losses.begin(), scores.losses.end(), 0.0);
  if (shared) world->broadcast(std::as_writable_bytes(std::span(&sum, 1)));  // rank 0 has all losses
  return sum / static_cast<double>(stretch.tokens);
}

std::function<std::optional<double>(Transformer&, const TokenFile&, int64_t, int64_t)> validation(
    Context& context, std::function<bool()> should_stop, Communicator* world) {
  return [&context, should_stop = std::move(should_stop), world](Transformer& model, const TokenFile& valid,
                                                                 int64_t tokens, int64_t length) {
    return validation_loss(context, model, {valid, {length, length}, tokens}, should_stop, world);
  };
}

size_t predict_validation_bytes(Context& context, Transformer& model, int64_t length) {
  const int64_t windows = std::max<int64_t>(ScoreOptions().batch_tokens / length, 1);
  return Inference(context, model, {.sequences = windows, .tokens = length}).bytes();
}

}  // namespace longshot
