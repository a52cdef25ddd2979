// A zip archive of stored (uncompressed) entries, used in place by memory map.
#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace longshot {

bool looks_like_zip(std::span<const std::byte> file);

// The entries by name. Reads the central directory (zip64 as well) and checks that every entry's bytes lie
// inside the file and that no two of them overlap. Compressed and encrypted entries are refused: `name`
// begins the messages.
std::map<std::string, std::span<const std::byte>, std::less<>> zip_entries(std::span<const std::byte> file,
                                                                           const std::string& name);

}  // namespace longshot
