#include "data/sentencepiece_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "base/error.h"

namespace longshot {
namespace {

constexpr size_t kLongestPiece = 4096;  // the library takes a level of recursion for each byte
constexpr size_t kDeepest = 256;        // bytes of a text that is normalised as one
constexpr size_t kMostLeaves = 32;      // rules that fit at one place: as many as the library has room for

// Protocol Buffers' wire format: (field, value) one behind the other, a value being a number or a run of bytes.
class Fields {
 public:
  Fields(std::string_view message, const std::string& origin) : rest_(message), origin_(origin) {}
  uint64_t field = 0;
  std::string_view bytes;  // of the value, if it is such a run

  bool next() {
    if (rest_.empty()) return false;
    const uint64_t tag = number();
    field = tag >> 3;
    bytes = {};
    switch (tag & 7) {
      case 0:
        number();
        break;
      case 1:
        take(8);
        break;
      case 2:
        bytes = take(number());
        break;
      case 5:
        take(4);
        break;
      default:
        fail("{}: not a SentencePiece model", origin_);
    }
    return true;
  }

 private:
  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::string_view take(uint64_t size) {
    require(size <= rest_.size(), "{}: the SentencePiece model ends too early. Was the copy interrupted?", origin_);
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
  const std::string& origin_;
};

// A double-array trie as the library walks it: from base b the byte c leads to unit b ^ c, if that unit's label is c,
// and on to base (b ^ c) ^ offset, where a leaf's value stands.
class Trie {
 public:
  Trie(std::string_view bytes, const std::string& origin) : units_(bytes.size() / 4), origin_(origin) {
    std::memcpy(units_.data(), bytes.data(), units_.size() * 4);
  }

  // Every unit that can be reached is inside, no path is too long, and every value is below `values`.
  void check(size_t values) const {
    std::map<size_t, size_t> bases{{next_base(0), 0}}, further;  // with the most leaves on a way to it
    for (size_t depth = 0; !bases.empty(); ++depth, bases.swap(further), further.clear()) {
      refuse_unless(depth <= kDeepest);
      for (const auto& [base, leaves] : bases) {
        for (size_t label = 0; label < 256; ++label) {
          const size_t at = base ^ label;
          const uint32_t unit = units_[at];
          if ((unit & 0x800000FF) != label) continue;
          const size_t target = next_base(at);
          const size_t count = leaves + (unit >> 8 & 1);
          if (unit >> 8 & 1) refuse_unless((units_[target] & 0x7FFFFFFF) < values);
          refuse_unless(count <= kMostLeaves);
          size_t& most = further[target];
          most = std::max(most, count);
        }
      }
    }
  }

 private:
  size_t next_base(size_t at) const {
    refuse_unless(at < units_.size());
    const uint32_t unit = units_[at];
    const size_t base = at ^ ((unit >> 10) << ((unit & (1u << 9)) >> 6));
    refuse_unless((base | 0xFF) < units_.size());
    return base;
  }
  void refuse_unless(bool ok) const {
    require(ok, "{}: the model's table of normalisation (precompiled_charsmap) is damaged", origin_);
  }
  std::vector<uint32_t> units_;
  const std::string& origin_;
};

// u32 size of the trie, the trie, then texts that end with a zero; a leaf's value is where its text begins.
void check_charsmap(std::string_view map, const std::string& origin) {
  if (map.empty()) return;
  uint32_t size = 0;
  require(map.size() > 4, "{}: the model's table of normalisation has {} bytes", origin, map.size());
  std::memcpy(&size, map.data(), 4);
  require(size % 4 == 0 && size > 0 && size < map.size() - 4 && map.back() == '\0',
          "{}: the model's table of normalisation has {} bytes, its trie {}", origin, map.size(), size);
  Trie(map.substr(4, size), origin).check(map.size() - 4 - size);
}

}  // namespace

// ModelProto: 1 pieces (1 text), 3 and 5 normaliser and denormaliser (2 precompiled_charsmap).
void check_sentencepiece_model(std::string_view model, const std::string& origin) {
  for (Fields top(model, origin); top.next();) {
    if (top.field != 1 && top.field != 3 && top.field != 5) continue;
    for (Fields inner(top.bytes, origin); inner.next();) {
      if (top.field == 1 && inner.field == 1) {
        require(inner.bytes.size() <= kLongestPiece, "{}: a piece has {} bytes; at most {} are taken", origin,
                inner.bytes.size(), kLongestPiece);
      } else if (top.field != 1 && inner.field == 2) {
        check_charsmap(inner.bytes, origin);
      }
    }
  }
}

}  // namespace longshot
