// `longshot info` for directories of Hugging Face models.
#pragma once
#include "base/files.h"

namespace longshot {

// Prints what config.json asks for, what of it is refused, and the tensors' names, types and shapes; their data stay unread.
// False, and nothing printed, where there is no config.json.
bool print_hf_info(const fs::path& path, bool json);

}  // namespace longshot
