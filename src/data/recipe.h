// Corpora that `longshot prepare --recipe NAME` fetches: a zip with the three splits.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/text_input.h"

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

// The archive in `dir`, verified by its checksum: downloads it unless it lies there. "" when stopped. Without a network
// the message says what to put where.
fs::path fetch_recipe(const Recipe& recipe, const fs::path& dir, const DownloadProgress& progress);

// Bytes of a member of a zip archive, and its text.
uint64_t zipped_size(const fs::path& archive, const std::string& member);
std::unique_ptr<TextInput> open_zipped(const fs::path& archive, const std::string& member);

// 32 hex digits, for the published checksums of downloads.
std::string md5_of(const fs::path& path);

}  // namespace longshot
