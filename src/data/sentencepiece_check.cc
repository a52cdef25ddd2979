#include "data/sentencepiece_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace longshot {
namespace {

constexpr size_t kLongestPiece = 4096;       // the library takes a level of recursion for each byte
constexpr size_t kDeepest = 256;             // bytes of a text that is normalised as one
constexpr size_t kMostLeaves = 32;           // rules that fit at one place: as many as the library has room for
constexpr size_t kMostSymbols = 64;          // symbols of the user that fit at one place, likewise
constexpr size_t kLongestReplacement = 128;  // what a rule puts into the text: so many times its size at most

// Protocol Buffers' wire format: (field, value) one behind the other, a value being a number or a run of bytes.
class Fields {
 public:
  Fields(std::string_view message, const std::string& origin) : rest_(message), origin_(origin) {}
  uint64_t field = 0;
  uint64_t number = 0;             // the value, if it is one
  bool is_bytes = false;           // the value is a run of bytes,
  std::string_view bytes;          // this one
  std::string_view with_its_name;  // all of the field

  bool next() {
    if (rest_.empty()) return false;
    const std::string_view here = rest_;
    const uint64_t tag = read_number();
    require(tag <= UINT32_MAX, "{}: not a SentencePiece model", origin_);  // others read the lower half of it
    field = tag >> 3;
    number = 0;
    bytes = {};
    is_bytes = (tag & 7) == 2;
    switch (tag & 7) {
      case 0:
        number = read_number();
        break;
      case 1:
        take(8);
        break;
      case 2:
        bytes = take(read_number());
        break;
      case 5:
        take(4);
        break;
      default:
        fail("{}: not a SentencePiece model", origin_);
    }
    with_its_name = here.substr(0, here.size() - rest_.size());
    return true;
  }

 private:
  uint64_t read_number() {
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

  // Every unit that can be reached is inside, no path is too long, and every value is where a short text begins.
  void check(std::string_view texts) const {
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
          if (unit >> 8 & 1) check_text(texts, units_[target] & 0x7FFFFFFF);
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
  void check_text(std::string_view texts, size_t begin) const {
    refuse_unless(begin < texts.size());
    require(texts.substr(begin, kLongestReplacement + 1).find('\0') != std::string_view::npos,
            "{}: a rule of normalisation puts more than {} bytes into the text", origin_, kLongestReplacement);
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
  Trie(map.substr(4, size), origin).check(map.substr(4 + size));
}

struct Piece {
  std::string_view text;
  bool is_symbol = false;  // of the user: taken whole wherever it stands
};

// SentencePiece: 1 text, 3 type. Of a field that is there twice the last one holds; of types, the last that is known.
Piece read_piece(std::string_view message, const std::string& origin) {
  constexpr uint32_t kUserDefined = 4;
  Piece piece;
  for (Fields inner(message, origin); inner.next();) {
    if (inner.field == 1 && inner.is_bytes) piece.text = inner.bytes;
    piece.is_symbol |= inner.field == 3 && static_cast<uint32_t>(inner.number) == kUserDefined;
  }
  require(piece.text.size() <= kLongestPiece, "{}: a piece has {} bytes; at most {} are taken", origin,
          piece.text.size(), kLongestPiece);
  require(piece.text.find('\0') == std::string_view::npos, "{}: a piece holds a zero byte, which no piece may", origin);
  return piece;
}

void check_symbols(std::vector<std::string_view> symbols, const std::string& origin) {
  std::ranges::sort(symbols);
  std::vector<std::string_view> fit;  // where the last of them stands; each begins with the one before
  for (const std::string_view symbol : symbols) {
    while (!fit.empty() && !symbol.starts_with(fit.back())) fit.pop_back();
    fit.push_back(symbol);
    require(fit.size() <= kMostSymbols, "{}: more than {} symbols of the user begin one another", origin, kMostSymbols);
  }
}

// TrainerSpec: 44 what an unknown id is decoded to.
void check_trainer(std::string_view message, const std::string& origin) {
  for (Fields inner(message, origin); inner.next();) {
    require(inner.field != 44 || inner.bytes.size() <= kLongestPiece,
            "{}: an unknown piece is written with {} bytes; at most {} are taken", origin, inner.bytes.size(),
            kLongestPiece);
  }
}

// NormalizerSpec: 2 precompiled_charsmap.
void check_normalizer(std::string_view message, const std::string& origin) {
  for (Fields inner(message, origin); inner.next();) {
    if (inner.field == 2) check_charsmap(inner.bytes, origin);
  }
}

}  // namespace

// ModelProto: 1 pieces, 2 trainer, 3 and 5 normaliser and denormaliser, 4 samples that the library would encode and print.
std::string checked_sentencepiece_model(std::string_view model, const std::string& origin) {
  std::vector<std::string_view> symbols;
  std::string kept;
  for (Fields top(model, origin); top.next();) {
    if (top.field == 4) continue;
    if (top.field == 1 && top.is_bytes) {
      const Piece piece = read_piece(top.bytes, origin);
      if (piece.is_symbol) symbols.push_back(piece.text);
    }
    if (top.field == 2) check_trainer(top.bytes, origin);
    if (top.field == 3 || top.field == 5) check_normalizer(top.bytes, origin);
    kept += top.with_its_name;
  }
  check_symbols(std::move(symbols), origin);
  return kept;
}

}  // namespace longshot
