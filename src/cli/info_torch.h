// `longshot info` for files of PyTorch's.
#pragma once
#include "base/files.h"

namespace longshot {

// Prints what a .pt file holds: container, tensors, and for a checkpoint of fairseq's the model. Tensor data
// stay unread. False, and nothing printed, if the file does not begin as one of torch.save's.
bool print_torch_info(const fs::path& path, bool json);

}  // namespace longshot
