// safetensors: 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes without
// holes.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "formats/dtype.h"

namespace longshot {

// A tensor as it lies in memory or in a mapped file: row-major, no particular alignment.
struct NamedTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};

using ByteSink = std::function<void(std::span<const std::byte>)>;

// A tensor whose bytes are made while it is written: give() hands them on in order, just as many as type and shape say.
struct StreamedTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::function<void(const ByteSink& sink)> give;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes the tensors in the order given and syncs; returns the bytes of the file, whose checksum goes to `sum` where there is
// one. Tensors begin 8-byte aligned. The file is written in place: publish() the directory that holds it.
uint64_t write_safetensors(const fs::path& path, std::span<const StreamedTensor> tensors,
                           const SafetensorsMetadata& metadata = {}, const Watch& watch = {}, Checksum* sum = nullptr);
// The same, straight from their memory.
uint64_t write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors,
                           const SafetensorsMetadata& metadata = {});

// A mapped safetensors file, checked whole before the constructor returns. Tensors live as long as it does.
class Safetensors {
 public:
  explicit Safetensors(const fs::path& path);

  const fs::path& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }  // in file order
  std::vector<std::string> names() const;                               // in file order

  const NamedTensor* find(std::string_view name) const;  // null when absent
  const NamedTensor& at(std::string_view name) const;    // throws when absent

  // Copies a floating tensor of exactly out.size() elements as float32.
  void read(std::string_view name, std::span<float> out) const;

 private:
  MappedFile file_;
  SafetensorsMetadata metadata_;
  std::vector<NamedTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace longshot
