// `longshot info --compat`: how other programs treat a model. docs/interop.md has the same table.
#pragma once
#include "model/config.h"

namespace longshot {

void print_compat(const ModelConfig& model, bool json);

}  // namespace longshot
