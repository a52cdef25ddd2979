// The loss that training watches: one pass over held-out text.
#pragma once
#include <functional>
#include <optional>

#include "base/context.h"
#include "data/token_file.h"
#include "evaluate/protocol.h"
#include "model/transformer.h"

namespace longshot {

// Mean loss in nats over a stretch; nothing when asked to stop. The ranks of `world` share the windows, and all have the
// result.
std::optional<double> validation_loss(Context& context, Transformer& model, const Stretch& stretch,
                                      const std::function<bool()>& should_stop, Communicator* world = nullptr);

// The same as a callback of the training loop: the first `tokens` tokens, in windows of `length`.
std::function<std::optional<double>(Transformer& model, const TokenFile& valid, int64_t tokens, int64_t length)>
validation(Context& context, std::function<bool()> should_stop, Communicator* world = nullptr);

// Bytes it takes beside the model, without taking them.
size_t predict_validation_bytes(Context& context, Transformer& model, int64_t length);

}  // namespace longshot
