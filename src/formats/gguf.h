// GGUF, the container of llama.cpp: versions 2 and 3, little-endian.
//
//   "GGUF", u32 version, u64 tensors, u64 keys
//   keys:     text, u32 type, value            text: u64 length, bytes; list: u32 type, u64 count, values
//   tensors:  text, u32 dimensions, u64 extents (the innermost first), u32 type, u64 offset
//   data:     from the next multiple of general.alignment on; offsets count from there
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "formats/dtype.h"
#include "formats/ggml_blocks.h"

namespace longshot {

enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kList, kU64, kI64, kF64 };

std::string_view gguf_type_name(GgufType type);

// A key and its value, which stays in the mapped file until it is asked for.
struct GgufKey {
  std::string_view name;
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of a list
  uint64_t count = 1;                // of a list
  std::string_view bytes;            // the value as it is stored, behind types and count
};

struct GgufTensor {
  std::string_view name;
  GgmlType type = GgmlType::kF32;
  Shape shape;  // row-major: the innermost extent last
  std::span<const std::byte> bytes;
};

// A mapped GGUF file, checked whole before the constructor returns. What it hands out lives as long as it does.
class Gguf {
 public:
  explicit Gguf(const fs::path& path);
  static bool is_one(const fs::path& path);  // by its first bytes

  const fs::path& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  uint32_t version() const { return version_; }
  const std::vector<GgufKey>& keys() const { return keys_; }           // by name
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in file order
  uint64_t data_bytes() const;

  const GgufTensor* find(std::string_view tensor) const;  // null when absent
  const GgufKey* find_key(std::string_view key) const;    // null when absent

  // The value of a key; nothing where there is none. A value of another kind is an Error; any whole number will do for an
  // integer, any number for a number.
  std::optional<int64_t> integer(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  std::optional<std::vector<std::string_view>> texts(std::string_view name) const;
  std::optional<std::vector<double>> numbers(std::string_view name) const;

 private:
  MappedFile file_;
  uint32_t version_ = 0;
  std::vector<GgufKey> keys_;        // sorted
  std::vector<GgufTensor> tensors_;  // by place
  std::vector<uint32_t> by_name_;    // of tensors_
};

// The keys of a file to be written, in the order added.
class GgufKeys {
 public:
  void add(std::string_view key, std::string_view text);
  void add(std::string_view key, const char* text) { add(key, std::string_view(text)); }
  void add(std::string_view key, bool value);
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, std::span<const std::string> texts);
  void add(std::string_view key, std::span<const float> values);
  void add(std::string_view key, std::span<const int32_t> values);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, GgufType type);
  void begin_list(std::string_view key, GgufType type, uint64_t count);
  void put_text(std::string_view text);
  template <class T>
  void put(T value);

  uint64_t count_ = 0;
  std::string bytes_;
};

struct GgufOutput {
  std::string name;
  GgmlType type = GgmlType::kF32;
  Shape shape;  // row-major
};

// Gives bytes of a tensor to the file, in order.
using GgufSink = std::function<void(std::span<const std::byte>)>;
// Hands all bytes of tensor `index` to the sink.
using GgufProducer = std::function<void(size_t index, const GgufSink& sink)>;

// Writes version 3 and syncs. The file is written in place: publish() it.
void write_gguf(const fs::path& path, const GgufKeys& keys, std::span<const GgufOutput> tensors,
                const GgufProducer& produce);

}  // namespace longshot
