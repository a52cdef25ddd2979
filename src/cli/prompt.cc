#include "cli/prompt.h"

#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/files.h"

namespace longshot {

std::string read_prompt(const std::string& path) {
  if (path != "-") return read_text(path);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

std::string length_label(int64_t tokens, int64_t train_length) {
  if (tokens <= train_length) return fmt::format("within the training length {}", train_length);
  return fmt::format("{:.1f} times the training length {}",
                     static_cast<double>(tokens) / static_cast<double>(train_length), train_length);
}

void set_attention_epsilon(Transformer& model, const std::optional<double>& epsilon) {
  if (!epsilon) return;
  require_usage(*epsilon >= 0 && *epsilon < 1, "--attention-epsilon: {} is not in [0, 1)", *epsilon);
  model.set_attention_epsilon(*epsilon);
}

}  // namespace longshot
