// The part of `longshot info PATH` that knows token sets, token files and tokenizers.
#pragma once
#include "base/files.h"

namespace longshot {

// Prints what is at `path`; false, and nothing printed, if it is none of these.
bool print_token_info(const fs::path& path, bool json);

}  // namespace longshot
