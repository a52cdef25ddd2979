// How far a text goes beyond what a model was trained on, in words.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace longshot {

// "3.2 times the training length 64", "within the training length 64".
inline std::string length_label(int64_t tokens, int64_t train_length) {
  if (tokens <= train_length) return fmt::format("within the training length {}", train_length);
  return fmt::format("{:.1f} times the training length {}",
                     static_cast<double>(tokens) / static_cast<double>(train_length), train_length);
}

}  // namespace longshot
