// TOML: the one reader of every file that holds it.
#pragma once
#include <toml++/toml.h>

#include "base/files.h"

namespace longshot {

// `origin` is what errors, of kind kUsage, call the text. Size and depth are limited.
toml::table parse_toml(const std::string& text, const std::string& origin);
toml::table read_toml(const fs::path& path);

}  // namespace longshot
