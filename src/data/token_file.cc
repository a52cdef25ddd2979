#include "data/token_file.h"

#include <lzma.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "data/token_set_dir.h"

namespace longshot {
namespace {

constexpr char kMagic[8] = {'L', 'O', 'N', 'G', 'T', 'O', 'K', 'S'};
constexpr uint32_t kVersion = 2;

struct Header {
  char magic[8];
  uint32_t version, width;
  uint64_t tokens, documents, tokenizer_hash, bytes, words;
  uint32_t vocab_size, start_id;
  uint64_t data_hash;  // since version 2
};
static_assert(sizeof(Header) == 72);
constexpr size_t header_size(uint32_t version) { return version == 1 ? offsetof(Header, data_hash) : sizeof(Header); }

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

int width_for(int vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

// f(block) for ids that are `width` bytes wide, of which `ids` holds the values.
template <class F>
void for_each_stored(std::span<const int32_t> ids, int width, F&& f) {
  if (width == 4) return f(std::as_bytes(ids));
  std::array<uint16_t, 4096> narrow;
  for (auto rest = ids; !rest.empty(); rest = rest.subspan(std::min(rest.size(), narrow.size()))) {
    const auto block = rest.first(std::min(rest.size(), narrow.size()));
    std::ranges::copy(block, narrow.begin());
    f(std::as_bytes(std::span(narrow).first(block.size())));
  }
}

// Of what was written; never more than the file has.
uint64_t bytes_written(const fs::path& path, uint64_t count, int width) {
  const uint64_t size = MappedFile(path).size();
  require(count <= size / static_cast<uint64_t>(width), "{}: has {} bytes, too few for the {} numbers said to be there",
          path.string(), size, count);
  return count * static_cast<uint64_t>(width);
}

uint64_t add_to_hash(uint64_t hash, std::span<const std::byte> bytes) {
  return lzma_crc64(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), hash);
}

}  // namespace

int width_of(IdType type) {
  return with_type(type, [](auto id) { return static_cast<int>(sizeof id); });
}

namespace {

Header read_header(const MappedFile& file) {
  const std::string name = file.path().string();
  Header h{};
  const size_t least = header_size(1);
  require(file.size() >= least, "{}: {} bytes are too few for a token file (header: {}). Was it written whole?", name,
          file.size(), least);
  std::memcpy(&h, file.bytes().data(), least);
  require(std::memcmp(h.magic, kMagic, sizeof kMagic) == 0, "{}: not a token file. Make one with `longshot prepare`.",
          name);
  require(h.version == 1 || h.version == kVersion, "{}: version {}, but this program reads versions 1 to {}", name,
          h.version, kVersion);
  const size_t size = header_size(h.version);
  require(file.size() >= size, "{}: {} bytes are too few for a token file (header: {}). Was it written whole?", name,
          file.size(), size);
  std::memcpy(&h, file.bytes().data(), size);
  require(h.width == 2 || h.width == 4, "{}: id width {} is neither 2 nor 4", name, h.width);
  require(h.vocab_size > 0 && h.vocab_size <= INT32_MAX, "{}: vocabulary size {} is not possible", name, h.vocab_size);
  require(h.start_id < h.vocab_size, "{}: start id {} is not below the vocabulary size {}", name, h.start_id,
          h.vocab_size);
  const uint64_t limit = file.size() / 2;  // no count can exceed it; keeps the sums below from overflowing
  require(h.tokens <= limit && h.documents <= limit,
          "{}: header claims {} ids and {} documents, the file has {} bytes. Was the copy interrupted?", name, h.tokens,
          h.documents, file.size());
  const uint64_t expected = size + padded(h.tokens * h.width) + h.documents * 8;
  require(expected == file.size(), "{}: header asks for {} bytes, the file has {}. Was the copy interrupted?", name,
          expected, file.size());
  return h;
}

void check_documents(std::span<const uint64_t> documents, uint64_t tokens, const std::string& name) {
  for (size_t d = 0; d < documents.size(); ++d) {
    require(d == 0 ? documents[0] == 0 : documents[d] >= documents[d - 1],
            "{}: document {} starts at {}, before the one in front of it", name, d, documents[d]);
    require(documents[d] <= tokens, "{}: document {} starts at {}, behind the last of {} ids", name, d, documents[d],
            tokens);
  }
}

}  // namespace

TokenFile::TokenFile(const fs::path& path) : file_(path) {
  const Header h = read_header(file_);
  counts_ = {.tokens = h.tokens, .documents = h.documents, .bytes = h.bytes, .words = h.words};
  tokenizer_hash_ = h.tokenizer_hash;
  vocab_size_ = static_cast<int>(h.vocab_size);
  type_ = h.width == 2 ? IdType::kU16 : IdType::kU32;
  start_id_ = static_cast<int32_t>(h.start_id);
  if (h.version > 1) data_hash_ = h.data_hash;
  ids_ = file_.bytes().data() + header_size(h.version);
  documents_ = {reinterpret_cast<const uint64_t*>(ids_ + padded(h.tokens * h.width)), h.documents};
  check_documents(documents_, h.tokens, path.string());
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

uint64_t TokenFile::computed_hash(const Watch& watch) const {
  uint64_t hash = 0;
  std::vector<int32_t> ids(std::min<size_t>(counts_.tokens, 1 << 16));
  for (int64_t at = 0; at < size(); at += static_cast<int64_t>(ids.size())) {
    watch.at(static_cast<double>(at) / static_cast<double>(size()));
    ids.resize(static_cast<size_t>(std::min<int64_t>(size() - at, 1 << 16)));
    read(at, ids);
    for_each_stored(ids, width_for(vocab_size_), [&](auto bytes) { hash = add_to_hash(hash, bytes); });
  }
  watch.at(1);
  return add_to_hash(hash, std::as_bytes(documents_));
}

void TokenFile::verify(const Watch& watch) const {
  if (!data_hash_) return;
  const uint64_t found = computed_hash(watch);
  require(found == *data_hash_, "{}: its ids have the hash {:016x}, but {:016x} was written. The file is damaged.",
          path().string(), found, *data_hash_);
}

namespace {

// Undoes finish(), where it came to its end.
const fs::path& unfinished(const fs::path& path) {
  if (!fs::exists(path)) return path;
  const TokenFile file(path);
  const auto documents = std::as_bytes(file.documents());
  write_atomically(TokenSetDir::documents_of(path),
                   {reinterpret_cast<const char*>(documents.data()), documents.size()});
  publish(path, aside_of(path));
  return path;
}

}  // namespace

TokenWriter::TokenWriter(const fs::path& path, Meta meta)
    : path_(path),
      meta_(meta),
      width_(width_for(meta.vocab_size)),
      out_(aside_of(path)),
      documents_(TokenSetDir::documents_of(path)) {
  const Header blank{};
  out_.write(&blank, sizeof blank);
}

TokenWriter::TokenWriter(const fs::path& path, Meta meta, const Checkpoint& checkpoint)
    : path_(unfinished(path)),
      meta_(meta),
      width_(width_for(meta.vocab_size)),
      written_(checkpoint),
      out_(aside_of(path), sizeof(Header) + bytes_written(aside_of(path), checkpoint.counts.tokens, width_)),
      documents_(TokenSetDir::documents_of(path),
                 bytes_written(TokenSetDir::documents_of(path), checkpoint.counts.documents, 8)) {}

void TokenWriter::begin_document() {
  documents_.write(&written_.counts.tokens, sizeof written_.counts.tokens);
  ++written_.counts.documents;
}

void TokenWriter::append(std::span<const int32_t> ids) {
  if (ids.empty()) return;
  if (written_.counts.documents == 0) begin_document();
  const auto [smallest, largest] = std::ranges::minmax(ids);
  require(smallest >= 0 && largest < meta_.vocab_size, "{}: id {} is outside the vocabulary of {}", path_.string(),
          smallest < 0 ? smallest : largest, meta_.vocab_size);
  for_each_stored(ids, width_, [&](std::span<const std::byte> bytes) {
    out_.write(bytes.data(), bytes.size());
    written_.ids_hash = add_to_hash(written_.ids_hash, bytes);
  });
  written_.counts.tokens += ids.size();
}

const TokenWriter::Checkpoint& TokenWriter::checkpoint() {
  out_.sync();
  documents_.sync();
  return written_;
}

TokenCounts TokenWriter::finish() {
  const TokenCounts& counts = written_.counts;
  const uint64_t id_bytes = counts.tokens * static_cast<uint64_t>(width_);
  const uint64_t zeros = 0;
  out_.write(&zeros, padded(id_bytes) - id_bytes);
  documents_.close();
  const MappedFile documents(TokenSetDir::documents_of(path_));
  out_.write(documents.bytes().data(), documents.size());
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.version = kVersion;
  h.width = static_cast<uint32_t>(width_);
  h.tokens = counts.tokens;
  h.documents = counts.documents;
  h.tokenizer_hash = meta_.tokenizer_hash;
  h.bytes = counts.bytes;
  h.words = counts.words;
  h.vocab_size = static_cast<uint32_t>(meta_.vocab_size);
  h.start_id = static_cast<uint32_t>(meta_.start_id);
  h.data_hash = add_to_hash(written_.ids_hash, documents.bytes());
  out_.overwrite(0, &h, sizeof h);
  out_.close();
  publish(aside_of(path_), path_);
  fs::remove(TokenSetDir::documents_of(path_));
  return counts;
}

}  // namespace longshot
