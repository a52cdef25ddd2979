#include "data/encoded.h"

#include <cstring>

#include "base/error.h"

namespace longshot {
namespace {

class Packer {
 public:
  void put(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  template <class List>
  void put_list(const List& list) {
    put(list.size());
    bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof list[0]);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}
  uint64_t number() {
    uint64_t value = 0;
    take(&value, sizeof value);
    return value;
  }
  template <class List>
  void list(List& list) {
    const uint64_t count = number();
    require(count <= bytes_.size() / sizeof list[0], "a message of another rank ends too early");
    list.resize(count);
    take(list.data(), count * sizeof list[0]);
  }

 private:
  void take(void* to, size_t size) {
    require(size <= bytes_.size(), "a message of another rank ends too early");
    if (size > 0) std::memcpy(to, bytes_.data(), size);
    bytes_.remove_prefix(size);
  }
  std::string_view bytes_;
};

}  // namespace

void Encoded::clear(size_t splits) {
  parts.resize(splits);
  for (Part& part : parts) {
    part.ids.clear();
    part.starts.clear();
    part.bytes = part.words = 0;
  }
  invalid_bytes = 0;
}

std::string packed(std::span<const Encoded> chunks) {
  Packer to;
  to.put(chunks.size());
  for (const Encoded& chunk : chunks) {
    to.put(chunk.parts.size());
    for (const Encoded::Part& part : chunk.parts) {
      to.put_list(part.ids);
      to.put_list(part.starts);
      to.put(part.bytes);
      to.put(part.words);
    }
    to.put(chunk.invalid_bytes);
    to.put_list(chunk.first_invalid);
  }
  return to.take();
}

std::vector<Encoded> unpacked(std::string_view bytes) {
  Unpacker from(bytes);
  std::vector<Encoded> chunks;
  for (uint64_t left = from.number(); left > 0; --left) {
    Encoded& chunk = chunks.emplace_back();
    for (uint64_t parts = from.number(); parts > 0; --parts) {
      Encoded::Part& part = chunk.parts.emplace_back();
      from.list(part.ids);
      from.list(part.starts);
      part.bytes = from.number();
      part.words = from.number();
    }
    chunk.invalid_bytes = from.number();
    from.list(chunk.first_invalid);
  }
  return chunks;
}

}  // namespace longshot
