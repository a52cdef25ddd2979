// A GGUF file taken apart, to be written again with something changed.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/scratch.h"

namespace longshot {

class GgufBuilder {
 public:
  struct Tensor {
    std::string name;
    uint32_t type;
    Shape shape;
    std::string bytes;
  };

  explicit GgufBuilder(const fs::path& path) {
    const Gguf file(path);
    for (const GgufKey& key : file.keys()) {
      std::string value = little_endian(static_cast<uint32_t>(key.type));
      if (key.type == GgufType::kList)
        value += little_endian(static_cast<uint32_t>(key.element)) + little_endian(key.count);
      keys_.push_back({std::string(key.name), value + std::string(key.bytes)});
    }
    for (const GgufTensor& t : file.tensors()) {
      const auto* bytes = reinterpret_cast<const char*>(t.bytes.data());
      tensors.push_back({std::string(t.name), static_cast<uint32_t>(t.type), t.shape, {bytes, t.bytes.size()}});
    }
  }

  void drop(const std::string& key) {
    std::erase_if(keys_, [&](const Key& k) { return k.name == key; });
  }
  void set(const std::string& key, GgufType type, const std::string& bytes) {
    drop(key);
    keys_.push_back({key, little_endian(static_cast<uint32_t>(type)) + bytes});
  }
  void set(const std::string& key, uint32_t value) { set(key, GgufType::kU32, little_endian(value)); }
  void set(const std::string& key, float value) { set(key, GgufType::kF32, little_endian(value)); }
  void set(const std::string& key, bool value) { set(key, GgufType::kBool, std::string(1, value ? '\1' : '\0')); }
  void set(const std::string& key, const char* text) { set(key, GgufType::kText, text_bytes(text)); }
  void set(const std::string& key, const std::vector<std::string>& texts) {
    std::string bytes = little_endian(static_cast<uint32_t>(GgufType::kText)) + little_endian(uint64_t{texts.size()});
    for (const std::string& text : texts) bytes += text_bytes(text);
    set(key, GgufType::kList, bytes);
  }
  void set(const std::string& key, const std::vector<float>& numbers) {
    std::string bytes = little_endian(static_cast<uint32_t>(GgufType::kF32)) + little_endian(uint64_t{numbers.size()});
    for (const float number : numbers) bytes += little_endian(number);
    set(key, GgufType::kList, bytes);
  }

  Tensor& tensor(const std::string& name) {
    const auto found = std::ranges::find(tensors, name, &Tensor::name);
    if (found == tensors.end()) throw std::runtime_error("no tensor " + name);
    return *found;
  }
  void drop_tensor(const std::string& name) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
  }

  std::string bytes() const {
    std::string out = "GGUF" + little_endian(uint32_t{3}) + little_endian(uint64_t{tensors.size()}) +
                      little_endian(uint64_t{keys_.size()}),
                data;
    for (const Key& key : keys_) out += text_bytes(key.name) + key.value;
    for (const Tensor& t : tensors) {
      out += text_bytes(t.name) + little_endian(static_cast<uint32_t>(t.shape.size()));
      for (size_t i = t.shape.size(); i-- > 0;) out += little_endian(t.shape[i]);
      out += little_endian(t.type) + little_endian(uint64_t{data.size()});
      data += t.bytes + std::string((32 - t.bytes.size() % 32) % 32, '\0');
    }
    return out + std::string((32 - out.size() % 32) % 32, '\0') + data;
  }

  std::vector<Tensor> tensors;

 private:
  struct Key {
    std::string name, value;  // value: type, and what follows it in the file
  };
  static std::string text_bytes(const std::string& text) { return little_endian(uint64_t{text.size()}) + text; }

  std::vector<Key> keys_;
};

}  // namespace longshot
