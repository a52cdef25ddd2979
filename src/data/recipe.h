// Corpora that `longshot prepare --recipe NAME` fetches: a zip with the three splits.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/files.h"

namespace longshot {

struct Recipe {
  std::string name;
  std::vector<std::string> urls;  // tried in order
  std::string md5;
  std::array<std::string, 3> members;  // of the zip: train, valid, test
};

const std::vector<Recipe>& recipes();
const Recipe& find_recipe(const std::string& name);  // unknown: Error(kUsage) that names the nearest

// bytes so far, bytes in all (0: not known); false stops
using DownloadProgress = std::function<bool(uint64_t, uint64_t)>;

// The three splits as files in `dir`: downloads the zip unless it lies there, verifies its checksum and
// unpacks it. Without a network the message says what to put where.
std::array<fs::path, 3> fetch_recipe(const Recipe& recipe, const fs::path& dir, const DownloadProgress& progress);

}  // namespace longshot
