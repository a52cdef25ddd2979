#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "base/error.h"

namespace longshot {
namespace {

constexpr char kMagic[8] = {'L', 'O', 'N', 'G', 'T', 'O', 'K', 'S'};
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version, width;
  uint64_t tokens, documents, tokenizer_hash, bytes, words;
  uint32_t vocab_size, start_id;
};
static_assert(sizeof(Header) == 64);

// f(a value of the type ids are stored as)
template <class F>
auto with_type(IdType type, F&& f) {
  switch (type) {
    case IdType::kU8:
      return f(uint8_t{});
    case IdType::kI8:
      return f(int8_t{});
    case IdType::kI16:
      return f(int16_t{});
    case IdType::kI32:
      return f(int32_t{});
    case IdType::kI64:
      return f(int64_t{});
    case IdType::kU16:
      return f(uint16_t{});
    case IdType::kU32:
      return f(uint32_t{});
    case IdType::kU64:
      return f(uint64_t{});
  }
  fail("an id type that is not known");
}

uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

fs::path aside_of(fs::path path) { return path += ".tmp"; }
fs::path documents_of(fs::path path) { return path += ".documents.tmp"; }

int width_for(int vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

}  // namespace

int width_of(IdType type) {
  return with_type(type, [](auto id) { return static_cast<int>(sizeof id); });
}

TokenFile::TokenFile(const fs::path& path) : file_(path) {
  const std::string name = path.string();
  Header h;
  require(file_.size() >= sizeof h, "{}: {} bytes are too few for a token file (header: {}). Was it written whole?",
          name, file_.size(), sizeof h);
  std::memcpy(&h, file_.bytes().data(), sizeof h);
  require(std::memcmp(h.magic, kMagic, sizeof kMagic) == 0, "{}: not a token file. Make one with `longshot prepare`.",
          name);
  require(h.version == kVersion, "{}: version {}, but this program reads version {}", name, h.version, kVersion);
  require(h.width == 2 || h.width == 4, "{}: id width {} is neither 2 nor 4", name, h.width);
  require(h.vocab_size > 0 && h.vocab_size <= INT32_MAX, "{}: vocabulary size {} is not possible", name, h.vocab_size);
  require(h.start_id < h.vocab_size, "{}: start id {} is not below the vocabulary size {}", name, h.start_id,
          h.vocab_size);
  const uint64_t limit = file_.size() / 2;  // no count can exceed it; keeps the sums below from overflowing
  require(h.tokens <= limit && h.documents <= limit,
          "{}: header claims {} ids and {} documents, the file has {} bytes. Was the copy interrupted?", name, h.tokens,
          h.documents, file_.size());
  const uint64_t expected = sizeof h + padded(h.tokens * h.width) + h.documents * 8;
  require(expected == file_.size(), "{}: header asks for {} bytes, the file has {}. Was the copy interrupted?", name,
          expected, file_.size());

  counts_ = {.tokens = h.tokens, .documents = h.documents, .bytes = h.bytes, .words = h.words};
  tokenizer_hash_ = h.tokenizer_hash;
  vocab_size_ = static_cast<int>(h.vocab_size);
  type_ = h.width == 2 ? IdType::kU16 : IdType::kU32;
  start_id_ = static_cast<int32_t>(h.start_id);
  ids_ = file_.bytes().data() + sizeof h;
  documents_ = {reinterpret_cast<const uint64_t*>(ids_ + padded(h.tokens * h.width)), h.documents};
  for (size_t d = 0; d < documents_.size(); ++d) {
    require(d == 0 ? documents_[0] == 0 : documents_[d] >= documents_[d - 1],
            "{}: document {} starts at {}, before the one in front of it", name, d, documents_[d]);
    require(documents_[d] <= h.tokens, "{}: document {} starts at {}, behind the last of {} ids", name, d,
            documents_[d], h.tokens);
  }
}

TokenFile::TokenFile(Parts parts)
    : file_(std::move(parts.file)),
      counts_(parts.counts),
      tokenizer_hash_(parts.tokenizer_hash),
      vocab_size_(parts.vocab_size),
      start_id_(parts.start_id),
      shift_(parts.shift),
      type_(parts.type),
      ids_(file_.bytes().data() + parts.ids_at),
      own_documents_(std::move(parts.documents)),
      documents_(own_documents_) {}

void TokenFile::read(int64_t first, std::span<int32_t> out) const {
  assert(first >= 0 && first + static_cast<int64_t>(out.size()) <= size());
  with_type(type_, [&]<class Id>(Id) {
    const auto* from = reinterpret_cast<const Id*>(ids_) + first;
    uint64_t largest = 0;  // a negative id is a large one here
    for (size_t i = 0; i < out.size(); ++i) {
      const uint64_t value = static_cast<uint64_t>(from[i]) - static_cast<uint64_t>(shift_);
      largest = std::max(largest, value);
      out[i] = static_cast<int32_t>(value);
    }
    require(largest < static_cast<uint64_t>(vocab_size_), "{}: id {} near index {} is not in the vocabulary of {}",
            path().string(), static_cast<int64_t>(largest), first, vocab_size_);
  });
}

TokenWriter::TokenWriter(const fs::path& path, Meta meta)
    : path_(path),
      meta_(meta),
      width_(width_for(meta.vocab_size)),
      out_(aside_of(path)),
      documents_(documents_of(path)) {
  const Header blank{};
  out_.write(&blank, sizeof blank);
}

TokenWriter::TokenWriter(const fs::path& path, Meta meta, const TokenCounts& checkpoint)
    : path_(path),
      meta_(meta),
      width_(width_for(meta.vocab_size)),
      counts_(checkpoint),
      out_(aside_of(path), sizeof(Header) + checkpoint.tokens * static_cast<uint64_t>(width_)),
      documents_(documents_of(path), checkpoint.documents * 8) {}

void TokenWriter::begin_document() {
  documents_.write(&counts_.tokens, sizeof counts_.tokens);
  ++counts_.documents;
}

void TokenWriter::append(std::span<const int32_t> ids) {
  if (ids.empty()) return;
  if (counts_.documents == 0) begin_document();
  const auto [smallest, largest] = std::ranges::minmax(ids);
  require(smallest >= 0 && largest < meta_.vocab_size, "{}: id {} is outside the vocabulary of {}", path_.string(),
          smallest < 0 ? smallest : largest, meta_.vocab_size);
  if (width_ == 2) {
    std::array<uint16_t, 4096> narrow;
    for (auto rest = ids; !rest.empty(); rest = rest.subspan(std::min(rest.size(), narrow.size()))) {
      const auto block = rest.first(std::min(rest.size(), narrow.size()));
      std::ranges::copy(block, narrow.begin());
      out_.write(narrow.data(), block.size() * 2);
    }
  } else {
    out_.write(ids.data(), ids.size() * 4);
  }
  counts_.tokens += ids.size();
}

const TokenCounts& TokenWriter::checkpoint() {
  out_.sync();
  documents_.sync();
  return counts_;
}

TokenCounts TokenWriter::finish() {
  const uint64_t id_bytes = counts_.tokens * static_cast<uint64_t>(width_);
  const uint64_t zeros = 0;
  out_.write(&zeros, padded(id_bytes) - id_bytes);
  documents_.close();
  {
    const MappedFile documents(documents_of(path_));
    out_.write(documents.bytes().data(), documents.size());
  }
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.width = static_cast<uint32_t>(width_);
  h.tokens = counts_.tokens;
  h.documents = counts_.documents;
  h.tokenizer_hash = meta_.tokenizer_hash;
  h.bytes = counts_.bytes;
  h.words = counts_.words;
  h.vocab_size = static_cast<uint32_t>(meta_.vocab_size);
  h.start_id = static_cast<uint32_t>(meta_.start_id);
  out_.overwrite(0, &h, sizeof h);
  out_.close();
  publish(aside_of(path_), path_);
  fs::remove(documents_of(path_));
  return counts_;
}

}  // namespace longshot
