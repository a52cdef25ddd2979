// Reads a TensorBoard event file: TFRecord frames, their checksums, the few protobuf fields of an event. Shares
// nothing with the writer.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace event_reader {

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  std::map<std::string, float> scalars;  // by tag
};

// CRC-32C, bit by bit.
inline uint32_t crc32c(const std::string& bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
  }
  return crc ^ 0xffffffff;
}

// What is left of a message or a file.
class Bytes {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  bool empty() const { return at_ == bytes_.size(); }

  std::string take(uint64_t size) {
    if (size > bytes_.size() - at_) throw std::runtime_error("byte " + std::to_string(at_) + ": cut short");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string checked(uint64_t size) {
    std::string part = take(size);
    uint32_t crc = number<uint32_t>() - 0xa282ead8;
    crc = (crc << 15) | (crc >> 17);
    if (crc != crc32c(part)) throw std::runtime_error("byte " + std::to_string(at_) + ": wrong checksum before it");
    return part;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
    throw std::runtime_error("a varint of more than 64 bits");
  }

  std::string text() { return take(varint()); }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// Keys are field << 3 | kind of value: 0 varint, 1 eight bytes, 2 counted bytes, 5 four bytes.
[[noreturn]] inline void unknown(uint64_t key) { throw std::runtime_error("unknown key " + std::to_string(key)); }

inline void read_value(Bytes message, Event& event) {
  std::string tag;
  while (!message.empty()) {
    const uint64_t key = message.varint();
    if (key == (1 << 3 | 2))
      tag = message.text();
    else if (key == (2 << 3 | 5))
      event.scalars[tag] = message.number<float>();
    else
      unknown(key);
  }
}

inline Event read_event(Bytes message) {
  Event event;
  while (!message.empty()) {
    const uint64_t key = message.varint();
    if (key == (1 << 3 | 1)) {
      event.wall_time = message.number<double>();
    } else if (key == (2 << 3 | 0)) {
      event.step = static_cast<int64_t>(message.varint());
    } else if (key == (3 << 3 | 2)) {
      event.file_version = message.text();
    } else if (key == (5 << 3 | 2)) {
      for (Bytes summary(message.text()); !summary.empty();) {
        if (const uint64_t inner = summary.varint(); inner != (1 << 3 | 2)) unknown(inner);
        read_value(Bytes(summary.text()), event);
      }
    } else {
      unknown(key);
    }
  }
  return event;
}

// Every event of a file. A frame that is cut short or damaged is an error.
inline std::vector<Event> read_events(const std::string& file) {
  std::vector<Event> events;
  for (Bytes bytes(file); !bytes.empty();) {
    uint64_t size = 0;
    std::memcpy(&size, bytes.checked(sizeof size).data(), sizeof size);
    events.push_back(read_event(Bytes(bytes.checked(size))));
  }
  return events;
}

}  // namespace event_reader
