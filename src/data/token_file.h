// Token files, DIR/{train,valid,test}.tokens: ids as written by `longshot prepare`, read by memory map.
//
//   offset  size            field                                          (little-endian)
//   0       8               magic "LONGTOKS"
//   8       4               version = 2; 1 has no data hash: its ids begin at 64
//   12      4               width of an id in bytes: 2 or 4
//   16      8               N, number of ids
//   24      8               M, number of documents
//   32      8               tokenizer hash
//   40      8               bytes of the text the ids stand for
//   48      8               words of that text (runs of non-whitespace)
//   56      4               vocabulary size
//   60      4               start id: the input in front of the first token (fairseq: </s>; bytes: newline)
//   64      8               data hash: CRC-64/XZ of the ids (each of that width) and the document table
//   72      N * width       ids, padded with zeros to a multiple of 8 bytes
//   ...     M * 8           index of each document's first id, ascending; the first is 0
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/files.h"
#include "base/watch.h"

namespace longshot {

struct TokenCounts {
  uint64_t tokens = 0, documents = 0, bytes = 0, words = 0;
};

// How an id is stored.
enum class IdType : uint8_t { kU8, kI8, kI16, kI32, kI64, kU16, kU32, kU64 };
int width_of(IdType type);  // in bytes

class TokenFile {
 public:
  explicit TokenFile(const fs::path& path);

  // Ids in a file of another format, already checked against its size.
  struct Parts {
    MappedFile file;
    size_t ids_at = 0;  // where they begin
    IdType type = IdType::kU16;
    int32_t shift = 0;  // stored minus shift is the id
    TokenCounts counts;
    uint64_t tokenizer_hash = 0;
    int vocab_size = 0;
    int32_t start_id = 0;
    std::vector<uint64_t> documents;
  };
  explicit TokenFile(Parts parts);

  const fs::path& path() const { return file_.path(); }
  int64_t size() const { return static_cast<int64_t>(counts_.tokens); }
  const TokenCounts& counts() const { return counts_; }
  uint64_t tokenizer_hash() const { return tokenizer_hash_; }
  int vocab_size() const { return vocab_size_; }
  int width() const { return width_of(type_); }
  int32_t start_id() const { return start_id_; }

  // ids[first, first + out.size()). REQUIRES: the range is inside the file. Throws if an id is not below the
  // vocabulary size.
  void read(int64_t first, std::span<int32_t> out) const;
  // Index of each document's first id, ascending.
  std::span<const uint64_t> documents() const { return documents_; }

  // Says which text this is: a function of the ids, the vocabulary's size and the document table, however they are
  // stored. As the header has it; a file without one is read through.
  uint64_t data_hash() const { return data_hash_ ? *data_hash_ : computed_hash(); }
  // The same from the data themselves. Throws if an id is not below the vocabulary size.
  uint64_t computed_hash(const Watch& watch = {}) const;
  // Throws if the ids are not those the header's hash was taken of. Reads them all; without such a hash, nothing.
  void verify(const Watch& watch = {}) const;

 private:
  MappedFile file_;
  TokenCounts counts_;
  uint64_t tokenizer_hash_ = 0;
  int vocab_size_ = 0;
  int32_t start_id_ = 0, shift_ = 0;
  IdType type_ = IdType::kU16;
  std::optional<uint64_t> data_hash_;  // of the header
  const std::byte* ids_ = nullptr;
  std::vector<uint64_t> own_documents_;  // where the file has none
  std::span<const uint64_t> documents_;
};

// Writes beside the final name and publishes on finish(); an unfinished file never has the final name. Memory
// does not grow with what is written. Work that was broken off can be taken up at the last checkpoint().
class TokenWriter {
 public:
  struct Meta {
    uint64_t tokenizer_hash = 0;
    int vocab_size = 0;  // ids are 2 bytes wide where it is at most 65536
    int32_t start_id = 0;
  };
  struct Checkpoint {
    TokenCounts counts;
    uint64_t ids_hash = 0;  // the data hash without the documents
  };
  TokenWriter(const fs::path& path, Meta meta);
  // Goes on behind the checkpoint, also in a file that was finished since.
  TokenWriter(const fs::path& path, Meta meta, const Checkpoint& checkpoint);

  void begin_document();
  void append(std::span<const int32_t> ids);  // throws on an id outside the vocabulary
  void add_text(uint64_t bytes, uint64_t words) { written_.counts.bytes += bytes, written_.counts.words += words; }
  const TokenCounts& counts() const { return written_.counts; }
  const Checkpoint& checkpoint();  // all that was written is on the disk
  TokenCounts finish();

 private:
  fs::path path_;
  Meta meta_;
  int width_;
  Checkpoint written_;
  OutputFile out_, documents_;  // PATH.tmp, PATH.documents.tmp
};

}  // namespace longshot
