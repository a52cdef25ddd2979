#include "cli/prompt.h"

#include <iostream>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace longshot {
namespace {

constexpr size_t kMostInput = size_t{256} << 20;

}  // namespace

std::string read_prompt(const std::string& path) {
  if (path != "-") return read_text(path);
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (std::cin.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), std::cin.gcount() > 0) {
    text.append(buffer.data(), static_cast<size_t>(std::cin.gcount()));
    require(text.size() <= kMostInput,
            "standard input: more than {} MB; score it with --unbounded, or make a token set of it", kMostInput >> 20);
  }
  return text;
}

}  // namespace longshot
