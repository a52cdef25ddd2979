#include "evaluate/validation.h"

#include <numeric>

#include "base/error.h"
#include "evaluate/protocol.h"

namespace longshot {

std::optional<double> validation_loss(Context& context, Transformer& model, const TokenFile& stream, int64_t tokens,
                                      const std::function<bool()>& should_stop) {
  if (should_stop()) return std::nullopt;
  bool stopped = false;
  ScoreOptions options{.document_mask = model.config().document_mask};
  options.should_stop = [&] { return stopped = should_stop(); };
  const int64_t length = model.config().length;
  try {
    const Scores scores = score_stream(context, model, stream, {.window = length, .stride = length}, tokens, options);
    return std::accumulate(scores.losses.begin(), scores.losses.end(), 0.0) / static_cast<double>(scores.losses.size());
  } catch (const Error&) {
    if (!stopped) throw;
    return std::nullopt;
  }
}

}  // namespace longshot
