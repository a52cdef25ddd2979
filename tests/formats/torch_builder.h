// Writes pickles, zip archives and PyTorch files byte by byte, right ones and wrong ones.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/scratch.h"

namespace longshot::build {

using Strings = std::vector<std::string>;

inline std::string joined(const Strings& parts) {
  std::string all;
  for (const std::string& p : parts) all += p;
  return all;
}

inline std::string text(std::string_view s) {
  return "X" + little_endian(static_cast<uint32_t>(s.size())) + std::string(s);
}
inline std::string number(int64_t n) { return "\x8a\x08" + little_endian(n); }
inline std::string real(double d) {
  std::string bytes = little_endian(d);
  return "G" + std::string(bytes.rbegin(), bytes.rend());
}
inline std::string boolean(bool b) { return b ? "\x88" : "\x89"; }
inline std::string none() { return "N"; }
inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string tuple(const Strings& parts) { return "(" + joined(parts) + "t"; }
inline std::string list(const Strings& parts) { return "](" + joined(parts) + "e"; }
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string all = "}(";
  for (const auto& [key, value] : items) all += text(key) + value;
  return all + "u";
}
inline std::string call(const std::string& callable, const Strings& arguments) {
  return callable + tuple(arguments) + "R";
}
inline std::string keep(int index) { return {'q', static_cast<char>(index)}; }
inline std::string recall(int index) { return {'h', static_cast<char>(index)}; }
inline std::string numbers(const std::vector<int64_t>& values) {
  Strings parts;
  for (const int64_t v : values) parts.push_back(number(v));
  return tuple(parts);
}
inline std::string storage(std::string_view type, std::string_view key, int64_t elements) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), number(elements)}) + "Q";
}
inline std::string tensor(const std::string& storage, int64_t offset, const std::vector<int64_t>& shape,
                          const std::vector<int64_t>& strides) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage, number(offset), numbers(shape), numbers(strides), boolean(false),
               call(global("collections", "OrderedDict"), {})});
}
inline std::string pickle(const std::string& body) { return "\x80\x02" + body + "."; }

struct ZipEntry {
  std::string name, data;
  uint16_t method = 0, flags = 0;
};

inline std::string crc32_of(const std::string& data) {
  return little_endian(static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size())));
}

// zip64: sizes and offsets in the central directory stand in the extra field, the totals in the zip64 end
// record.
inline std::string zip(const std::vector<ZipEntry>& entries, bool zip64 = false) {
  std::string file, directory;
  for (const ZipEntry& e : entries) {
    const auto size = static_cast<uint32_t>(e.data.size());
    const auto offset = static_cast<uint32_t>(file.size());
    const uint32_t size_field = zip64 ? UINT32_MAX : size, offset_field = zip64 ? UINT32_MAX : offset;
    const std::string extra = zip64 ? little_endian(uint16_t{1}) + little_endian(uint16_t{24}) +
                                          little_endian(uint64_t{size}) + little_endian(uint64_t{size}) +
                                          little_endian(uint64_t{offset})
                                    : "";
    const auto name_size = little_endian(static_cast<uint16_t>(e.name.size()));
    const std::string kinds = little_endian(e.flags) + little_endian(e.method) + little_endian(uint32_t{0});
    file += "PK\x03\x04" + little_endian(uint16_t{45}) + kinds + crc32_of(e.data) + little_endian(size) +
            little_endian(size) + name_size + little_endian(uint16_t{0}) + e.name + e.data;
    directory += "PK\x01\x02" + little_endian(uint32_t{45}) + kinds + crc32_of(e.data) + little_endian(size_field) +
                 little_endian(size_field) + name_size + little_endian(static_cast<uint16_t>(extra.size())) +
                 std::string(10, '\0') + little_endian(offset_field) + e.name + extra;
  }
  const auto begin = static_cast<uint32_t>(file.size()), size = static_cast<uint32_t>(directory.size());
  const auto count = static_cast<uint16_t>(entries.size());
  file += directory;
  const uint64_t end64 = file.size();
  if (zip64) {
    file += "PK\x06\x06" + little_endian(uint64_t{44}) + little_endian(uint32_t{45}) + std::string(8, '\0') +
            little_endian(uint64_t{count}) + little_endian(uint64_t{count}) + little_endian(uint64_t{size}) +
            little_endian(uint64_t{begin});
    file += "PK\x06\x07" + little_endian(uint32_t{0}) + little_endian(end64) + little_endian(uint32_t{1});
  }
  return file + "PK\x05\x06" + little_endian(uint32_t{0}) + little_endian(zip64 ? uint16_t{UINT16_MAX} : count) +
         little_endian(zip64 ? uint16_t{UINT16_MAX} : count) + little_endian(zip64 ? UINT32_MAX : size) +
         little_endian(zip64 ? UINT32_MAX : begin) + little_endian(uint16_t{0});
}

using Storages = std::vector<std::pair<std::string, std::string>>;  // key, bytes

inline std::string torch_zip(const std::string& body, const Storages& storages = {}) {
  std::vector<ZipEntry> entries{{"archive/data.pkl", pickle(body)}};
  for (const auto& [key, bytes] : storages) entries.push_back({"archive/data/" + key, bytes});
  return zip(entries);
}

inline std::string floats(const std::vector<float>& values) {
  std::string bytes;
  for (const float v : values) bytes += little_endian(v);
  return bytes;
}

}  // namespace longshot::build
