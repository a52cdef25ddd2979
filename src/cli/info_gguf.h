// `longshot info` for GGUF files.
#pragma once
#include "base/files.h"

namespace longshot {

// Prints what its keys ask for, what of it is refused, the keys, and the tensors' names, types and shapes; their data stay
// unread. False, and nothing printed, where it is no such file.
bool print_gguf_info(const fs::path& path, bool json);

}  // namespace longshot
