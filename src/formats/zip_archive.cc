#include "formats/zip_archive.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"

namespace longshot {
namespace {

static_assert(std::endian::native == std::endian::little, "zip is little-endian");

constexpr uint32_t kLocalSignature = 0x04034b50, kCentralSignature = 0x02014b50, kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50, kEnd64LocatorSignature = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kEnd64LocatorBytes = 20;

// Fixed-width fields at known places, each checked against the end.
class Fields {
 public:
  Fields(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Fields sub(uint64_t offset, uint64_t size, const char* what) const {
    require(offset <= bytes_.size() && size <= bytes_.size() - offset,
            "{}: {} at byte {} needs {} bytes, the file has {}. Was the copy interrupted?", name_, what, offset, size,
            bytes_.size());
    return {bytes_.subspan(offset, size), name_};
  }
  template <class T>
  T at(size_t offset) const {
    T value;
    require(offset + sizeof value <= bytes_.size(), "{}: a zip header ends after {} bytes", name_, bytes_.size());
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
};

struct Directory {
  uint64_t offset = 0, size = 0, count = 0;
};

Directory find_directory(const Fields& file, const std::string& name) {
  const size_t total = file.bytes().size();
  constexpr size_t kMaxComment = 65535;
  require(total >= kEndBytes, "{}: {} bytes are too few for a zip archive", name, total);
  const size_t last = total - kEndBytes;
  const size_t first = last > kMaxComment ? last - kMaxComment : 0;
  for (size_t at = last + 1; at-- > first;) {
    if (file.at<uint32_t>(at) != kEndSignature || file.at<uint16_t>(at + 20) != last - at) continue;
    if (at < kEnd64LocatorBytes || file.at<uint32_t>(at - kEnd64LocatorBytes) != kEnd64LocatorSignature) {
      return {file.at<uint32_t>(at + 16), file.at<uint32_t>(at + 12), file.at<uint16_t>(at + 10)};
    }
    const Fields end =
        file.sub(file.at<uint64_t>(at - kEnd64LocatorBytes + 8), kEnd64Bytes, "the end of the zip directory");
    require(end.at<uint32_t>(0) == kEnd64Signature, "{}: the zip64 end record has the wrong signature", name);
    return {end.at<uint64_t>(48), end.at<uint64_t>(40), end.at<uint64_t>(32)};
  }
  fail("{}: the zip archive has no end record. Was the copy interrupted?", name);
}

struct Entry {
  std::string name;
  uint64_t size = 0, header = 0;
  uint32_t crc32 = 0;
};

// The zip64 extra field holds, in this order, those of the sizes and the offset that do not fit 32 bits.
void read_zip64(const Fields& extra, const std::string& file, Entry& entry, uint64_t& compressed) {
  constexpr uint16_t kZip64 = 1;
  constexpr uint64_t kElsewhere = UINT32_MAX;
  for (size_t at = 0; at + 4 <= extra.bytes().size();) {
    const auto id = extra.at<uint16_t>(at), size = extra.at<uint16_t>(at + 2);
    if (id == kZip64) {
      const Fields field = extra.sub(at + 4, size, "a zip64 field");
      size_t used = 0;
      for (uint64_t* value : {&entry.size, &compressed, &entry.header}) {
        if (*value != kElsewhere) continue;
        *value = field.at<uint64_t>(used);
        used += 8;
      }
      return;
    }
    at += 4 + size_t{size};
  }
  require(entry.size != kElsewhere && compressed != kElsewhere && entry.header != kElsewhere,
          "{}: zip entry {} does not say its size", file, shown(entry.name));
}

// Reads the entry whose record begins at `at` of the central directory and moves `at` behind it.
Entry read_entry(const Fields& directory, const std::string& file, uint64_t& at) {
  const Fields record = directory.sub(at, kCentralBytes, "a zip directory entry");
  require(record.at<uint32_t>(0) == kCentralSignature, "{}: a zip directory entry has the wrong signature", file);
  const auto flags = record.at<uint16_t>(8), method = record.at<uint16_t>(10);
  const auto name_bytes = record.at<uint16_t>(28), extra_bytes = record.at<uint16_t>(30);
  uint64_t compressed = record.at<uint32_t>(20);
  Entry entry{"", record.at<uint32_t>(24), record.at<uint32_t>(42), record.at<uint32_t>(16)};
  at += kCentralBytes;
  entry.name = directory.sub(at, name_bytes, "a zip entry's name").text();
  at += name_bytes;
  read_zip64(directory.sub(at, extra_bytes, "a zip entry's extra field"), file, entry, compressed);
  at += extra_bytes + record.at<uint16_t>(32);

  constexpr uint16_t kEncrypted = 1;
  require(!(flags & kEncrypted), "{}: zip entry {} is encrypted", file, shown(entry.name));
  require(method == 0 && compressed == entry.size,
          "{}: zip entry {} is compressed ({} bytes as {}). PyTorch stores without compression; pack it "
          "again with "
          "`zip -0`.",
          file, shown(entry.name), entry.size, compressed);
  return entry;
}

// The bytes of an entry, behind its own header, which must tell the same name. `end` becomes the place behind them.
std::span<const std::byte> data_of(const Fields& file, const Entry& entry, const std::string& name, uint64_t& end) {
  const Fields local = file.sub(entry.header, kLocalBytes, "a zip entry's header");
  require(local.at<uint32_t>(0) == kLocalSignature, "{}: zip entry {} has no header at byte {}", name,
          shown(entry.name), entry.header);
  const uint64_t name_begin = entry.header + kLocalBytes;
  const auto name_bytes = local.at<uint16_t>(26);
  require(file.sub(name_begin, name_bytes, "a zip entry's name").text() == entry.name,
          "{}: zip entry {} has another name in its own header", name, shown(entry.name));
  const uint64_t begin = name_begin + name_bytes + local.at<uint16_t>(28);
  end = begin + entry.size;
  return file.sub(begin, entry.size, "a zip entry's data").bytes();
}

}  // namespace

bool looks_like_zip(std::span<const std::byte> file) {
  uint32_t signature = 0;
  if (file.size() < sizeof signature) return false;
  std::memcpy(&signature, file.data(), sizeof signature);
  return signature == kLocalSignature;
}

StoredEntries zip_entries(std::span<const std::byte> bytes, const std::string& name) {
  const Fields file(bytes, name);
  const Directory directory = find_directory(file, name);
  const Fields records = file.sub(directory.offset, directory.size, "the zip directory");
  require(directory.count <= directory.size / kCentralBytes, "{}: the zip directory of {} bytes cannot hold {} entries",
          name, directory.size, directory.count);

  struct Extent {
    uint64_t begin, end;
    std::string name;
  };
  std::vector<Extent> extents;
  StoredEntries entries;
  uint64_t at = 0;
  for (uint64_t i = 0; i < directory.count; ++i) {
    const Entry entry = read_entry(records, name, at);
    uint64_t end = 0;
    const StoredEntry stored{data_of(file, entry, name, end), entry.crc32};
    require(entries.emplace(entry.name, stored).second, "{}: two zip entries have the name {}", name,
            shown(entry.name));
    extents.push_back({entry.header, end, entry.name});
  }
  const auto has_none = [](const auto& entry) { return entry.second.crc32 == 0u; };
  if (std::all_of(entries.begin(), entries.end(), has_none)) {
    for (auto& [entry, stored] : entries) stored.crc32.reset();
  }
  extents.push_back({directory.offset, directory.offset + directory.size, "the directory"});
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i) {
    require(extents[i - 1].end <= extents[i].begin, "{}: zip entries {} and {} overlap at byte {}", name,
            shown(extents[i - 1].name), shown(extents[i].name), extents[i].begin);
  }
  return entries;
}

void check_crc32(const StoredEntry& entry, std::string_view entry_name, const std::string& name) {
  if (!entry.crc32) return;
  const uint32_t found = crc32(entry.data);
  require(found == *entry.crc32,
          "{}: zip entry {} has the checksum {:08x}, not the {:08x} it was written with. The file "
          "is damaged.",
          name, shown(entry_name), found, *entry.crc32);
}

}  // namespace longshot
