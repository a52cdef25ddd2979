#include "evaluate/validation.h"

#include <numeric>

#include "evaluate/protocol.h"

namespace longshot {

std::optional<double> validation_loss(Context& context, Transformer& model, const TokenFile& stream, int64_t tokens,
                                      const std::function<bool()>& should_stop) {
  if (should_stop()) return std::nullopt;
  const int64_t length = model.config().length;
  ScoreOptions options{.document_mask = model.config().document_mask};
  options.should_stop = should_stop;
  const Scores scores = score_stream(context, model, {stream, {length, length}, tokens}, options);
  if (!scores.finished) return std::nullopt;
  return std::accumulate(scores.losses.begin(), scores.losses.end(), 0.0) / static_cast<double>(tokens);
}

std::function<std::optional<double>(Transformer&, const TokenFile&, int64_t)> validation(
    Context& context, std::function<bool()> should_stop) {
  return [&context, should_stop = std::move(should_stop)](Transformer& model, const TokenFile& valid, int64_t tokens) {
    return validation_loss(context, model, valid, tokens, should_stop);
  };
}

}  // namespace longshot
