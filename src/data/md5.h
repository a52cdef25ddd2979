// MD5 (RFC 1321), for the published checksums of downloads. Not for security.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace longshot {

class Md5 {
 public:
  void add(std::string_view bytes);
  std::string hex();  // of all that was added; call once

 private:
  void block(const unsigned char* bytes);
  std::array<uint32_t, 4> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::string pending_;  // less than a block
  uint64_t size_ = 0;
};

}  // namespace longshot
