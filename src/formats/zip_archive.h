// A zip archive of stored (uncompressed) entries, used in place by memory map.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace longshot {

bool looks_like_zip(std::span<const std::byte> file);

struct StoredEntry {
  std::span<const std::byte> data;
  std::optional<uint32_t> crc32;  // none: PyTorch was told to leave them out, and every entry has 0
};
using StoredEntries = std::map<std::string, StoredEntry, std::less<>>;

// The entries by name. Reads the central directory (zip64 as well) and checks that every entry's bytes lie
// inside the file and that no two of them overlap. Compressed and encrypted entries are refused: `name`
// begins the messages.
StoredEntries zip_entries(std::span<const std::byte> bytes, const std::string& name);

// Throws where the entry's bytes do not have its checksum. Reads them all.
void check_crc32(const StoredEntry& entry, std::string_view entry_name, const std::string& name);

}  // namespace longshot
