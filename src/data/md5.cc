#include "data/md5.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace longshot {

void Md5::add(std::string_view bytes) {
  size_ += bytes.size();
  if (!pending_.empty()) {
    const size_t n = std::min(bytes.size(), 64 - pending_.size());
    pending_.append(bytes.substr(0, n));
    bytes.remove_prefix(n);
    if (pending_.size() < 64) return;
    block(reinterpret_cast<const unsigned char*>(pending_.data()));
    pending_.clear();
  }
  for (; bytes.size() >= 64; bytes.remove_prefix(64)) block(reinterpret_cast<const unsigned char*>(bytes.data()));
  pending_ = bytes;
}

std::string Md5::hex() {
  const uint64_t bits = size_ * 8;
  std::string tail(1, '\x80');
  tail.append((119 - size_ % 64) % 64, '\0');
  for (int i = 0; i < 8; ++i) tail += static_cast<char>(bits >> (8 * i));
  add(tail);
  std::string out;
  for (const uint32_t word : state_) {
    for (int i = 0; i < 4; ++i) out += fmt::format("{:02x}", word >> (8 * i) & 0xFF);
  }
  return out;
}

void Md5::block(const unsigned char* bytes) {
  static const auto sines = [] {  // floor(2^32 |sin(i + 1)|)
    std::array<uint32_t, 64> table{};
    for (size_t i = 0; i < 64; ++i)
      table[i] = static_cast<uint32_t>(std::floor(std::abs(std::sin(static_cast<double>(i + 1))) * 0x1p32));
    return table;
  }();
  static constexpr int kTurns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
  std::array<uint32_t, 16> words{};
  std::memcpy(words.data(), bytes, 64);
  auto [a, b, c, d] = state_;
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t round = i / 16;
    const uint32_t mixed = round == 0   ? (b & c) | (~b & d)
                           : round == 1 ? (d & b) | (~d & c)
                           : round == 2 ? b ^ c ^ d
                                        : c ^ (b | ~d);
    const uint32_t word = (round == 0 ? i : round == 1 ? 5 * i + 1 : round == 2 ? 3 * i + 5 : 7 * i) % 16;
    const uint32_t turned = std::rotl(a + mixed + sines[i] + words[word], kTurns[round][i % 4]);
    a = d, d = c, c = b, b += turned;
  }
  state_ = {state_[0] + a, state_[1] + b, state_[2] + c, state_[3] + d};
}

}  // namespace longshot
