// The loss that training watches: one pass over held-out text, in windows of the training length.
#pragma once
#include <functional>
#include <optional>

#include "base/context.h"
#include "data/token_file.h"
#include "model/transformer.h"

namespace longshot {

// Mean loss in nats over the first `tokens` tokens of the stream; nothing when asked to stop.
std::optional<double> validation_loss(Context& context, Transformer& model, const TokenFile& stream, int64_t tokens,
                                      const std::function<bool()>& should_stop);

// The same as a callback of the training loop.
std::function<std::optional<double>(Transformer& model, const TokenFile& valid, int64_t tokens)> validation(
    Context& context, std::function<bool()> should_stop);

}  // namespace longshot
