// What commands that run a model on a text share.
#pragma once
#include <cstdint>
#include <string>

namespace longshot {

// A file's text, or standard input's for "-".
std::string read_prompt(const std::string& path);

// "3.2 times the training length 64", "within the training length 64".
std::string length_label(int64_t tokens, int64_t train_length);

}  // namespace longshot
