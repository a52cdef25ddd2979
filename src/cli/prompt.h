// What commands that run a model on a text share.
#pragma once
#include <string>

namespace longshot {

// A file's text, or standard input's for "-".
std::string read_prompt(const std::string& path);

}  // namespace longshot
