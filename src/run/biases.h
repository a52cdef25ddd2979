// What a position method adds to the scores, read off a model.
#pragma once
#include <optional>

#include "model/transformer.h"
#include "run/results.h"

namespace longshot {

// Of the first layer, up to `distances` distances; none where the method has no bias.
std::optional<Biases> biases_of(Transformer& model, int64_t distances);

}  // namespace longshot
