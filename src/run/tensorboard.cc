// An event file is a sequence of TFRecord frames, little-endian:
//
//   u64 size   u32 masked(CRC-32C of the 8 bytes)   size bytes   u32 masked(CRC-32C of them)
//   masked(c) = ((c >> 15) | (c << 17)) + 0xa282ead8
//
// Each holds a protobuf message:
//
//   Event   { double wall_time = 1;  int64 step = 2;  string file_version = 3 or Summary summary = 5; }
//   Summary { repeated Value value = 1; }      Value { string tag = 1;  float simple_value = 2; }
//
// The first says "brain.Event:2", the version of all this.
#include "run/tensorboard.h"

#include <array>
#include <chrono>
#include <cstring>

namespace longshot {
namespace {

enum class Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// CRC-32C (Castagnoli): reflected polynomial 82f63b78, all ones before and behind.
uint32_t crc32c(std::string_view bytes) {
  constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? 0x82f63b78u : 0u);
      table[i] = c;
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 255];
  return ~crc;
}

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string checked(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::string(bytes) + raw(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

std::string frame(std::string_view message) { return checked(raw(uint64_t{message.size()})) + checked(message); }

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

std::string key(uint64_t field, Wire wire) { return varint(field << 3 | static_cast<uint64_t>(wire)); }
std::string text_field(uint64_t field, std::string_view text) {
  return key(field, Wire::kBytes) + varint(text.size()) + std::string(text);
}

std::string event(double wall_time, std::string_view rest) {
  return frame(key(1, Wire::kFixed64) + raw(wall_time) + std::string(rest));
}

std::string summary_of(const MetricsRecord& record) {
  std::string values;
  const auto scalar = [&](std::string_view tag, const OptionalNumber& value) {
    if (!value) return;
    values += text_field(1, text_field(1, tag) + key(2, Wire::kFixed32) + raw(static_cast<float>(*value)));
  };
  scalar("loss/train", record.loss);
  scalar("loss/valid", record.valid_loss);
  for (const ValidLoss& v : record.valid_losses) scalar(fmt::format("loss/valid at {}", v.length), v.loss);
  scalar("schedule/lr", record.lr);
  scalar("gradient_norm", record.gradient_norm);
  scalar("tokens_per_second", record.tokens_per_second);
  return values;
}

std::string version_event(double wall_time) { return event(wall_time, text_field(3, "brain.Event:2")); }

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string EventFile::event_of(const MetricsRecord& record) const {
  return event(started_ + record.seconds.value_or(0),
               key(2, Wire::kVarint) + varint(static_cast<uint64_t>(record.step)) + text_field(5, summary_of(record)));
}

void EventFile::write(std::span<const MetricsRecord> records) {
  started_ = now() - (records.empty() ? 0 : records.back().seconds.value_or(0));
  if (fs::exists(path_)) OutputFile(path_, 0).close();
  if (records.empty()) return;
  std::string bytes = version_event(started_);
  for (const MetricsRecord& record : records) bytes += event_of(record);
  append_text(path_, bytes);
}

void EventFile::append(const MetricsRecord& record) {
  const bool first = !fs::exists(path_) || fs::file_size(path_) == 0;
  append_text(path_, (first ? version_event(started_) : "") + event_of(record));
}

}  // namespace longshot
