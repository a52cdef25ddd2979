// Reads numpy's .npy and .npz files, as far as goldens need it.
#pragma once
#include <charconv>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "formats/zip_archive.h"

namespace longshot {

struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

inline NpyArray parse_npy(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  require(text.starts_with("\x93NUMPY\x01"), "not an .npy file of version 1");
  uint16_t header_size = 0;
  std::memcpy(&header_size, text.data() + 8, 2);
  const std::string_view header = text.substr(10, header_size);
  const std::string_view data = text.substr(10 + size_t{header_size});
  require(header.find("'fortran_order': False") != std::string_view::npos, "column-major");
  NpyArray array;
  const size_t open = header.find('(');
  std::string_view list = header.substr(open + 1, header.find(')') - open - 1);
  size_t count = 1;
  while (!list.empty()) {
    int64_t extent = 0;
    const auto end = std::from_chars(list.data(), list.data() + list.size(), extent);
    array.shape.push_back(extent);
    count *= static_cast<size_t>(extent);
    list.remove_prefix(static_cast<size_t>(end.ptr - list.data()));
    while (!list.empty() && (list[0] == ',' || list[0] == ' ')) list.remove_prefix(1);
  }
  const auto read = [&](auto zero) {
    for (size_t i = 0; i < count; ++i) {
      auto value = zero;
      std::memcpy(&value, data.substr(i * sizeof value, sizeof value).data(), sizeof value);
      array.values.push_back(static_cast<double>(value));
    }
  };
  if (header.find("<f4") != std::string_view::npos) {
    read(float{});
  } else if (header.find("<f8") != std::string_view::npos) {
    read(double{});
  } else {
    require(header.find("<i8") != std::string_view::npos, "unknown element type");
    read(int64_t{});
  }
  return array;
}

inline NpyArray read_npy(const fs::path& path) { return parse_npy(MappedFile(path).bytes()); }

inline std::map<std::string, NpyArray> read_npz(const fs::path& path) {
  const MappedFile file(path);
  std::map<std::string, NpyArray> arrays;
  for (const auto& [name, entry] : zip_entries(file.bytes(), path.string())) {
    arrays.emplace(name.substr(0, name.size() - 4), parse_npy(entry.data));
  }
  return arrays;
}

}  // namespace longshot
