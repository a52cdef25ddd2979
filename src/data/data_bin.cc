#include "data/data_bin.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace longshot {
namespace {

using namespace std::string_view_literals;
constexpr std::string_view kMapped = "MMIDIDX\0\0"sv, kLegacy = "TNTIDX\0\0"sv;

// Reads little-endian numbers one behind the other; never past the end.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(file), rest_(file.text()) {}
  bool starts_with(std::string_view magic) {
    if (!rest_.starts_with(magic)) return false;
    rest_.remove_prefix(magic.size());
    return true;
  }
  template <class T>
  T next() {
    require(rest_.size() >= sizeof(T), "{}: {} bytes are too few for its header. Was the copy interrupted?",
            file_.path().string(), file_.size());
    T value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  size_t left() const { return rest_.size(); }

 private:
  const MappedFile& file_;
  std::string_view rest_;
};

IdType type_of(uint64_t code, const std::string& name) {
  switch (code) {
    case 1:
      return IdType::kU8;
    case 2:
      return IdType::kI8;
    case 3:
      return IdType::kI16;
    case 4:
      return IdType::kI32;
    case 5:
      return IdType::kI64;
    case 8:
      return IdType::kU16;
    case 9:
      return IdType::kU32;
    case 10:
      return IdType::kU64;
    default:
      fail("{}: type code {} is not one of whole numbers", name, code);
  }
}

struct Index {
  IdType type;
  uint64_t lines = 0, tokens = 0;
  int32_t shift = 0;
};

Index read_mapped(Cursor& at, const std::string& name) {
  const auto version = at.next<uint64_t>();
  require(version == 1, "{}: version {}, but only 1 is known", name, version);
  Index index{.type = type_of(at.next<uint8_t>(), name)};
  index.lines = at.next<uint64_t>();
  require(index.lines <= at.left() / 12 && at.left() == index.lines * 12,
          "{}: header claims {} lines, for which {} bytes are not right. Was the copy interrupted?", name, index.lines,
          at.left());
  std::vector<int32_t> sizes(index.lines);
  for (int32_t& size : sizes) size = at.next<int32_t>();
  for (uint64_t line = 0; line < index.lines; ++line) {
    require(sizes[line] >= 0, "{}: line {} has {} ids", name, line, sizes[line]);
    const auto offset = at.next<int64_t>();
    require(offset >= 0 && static_cast<uint64_t>(offset) == index.tokens * static_cast<uint64_t>(width_of(index.type)),
            "{}: line {} is said to start at byte {}, not where the one before it ends", name, line, offset);
    index.tokens += static_cast<uint64_t>(sizes[line]);
  }
  return index;
}

Index read_legacy(Cursor& at, const std::string& name) {
  const auto version = at.next<uint64_t>();
  require(version == 1, "{}: version {}, but only 1 is known", name, version);
  Index index{.type = type_of(at.next<uint64_t>(), name), .shift = 1};
  const auto width = at.next<uint64_t>();
  require(width == static_cast<uint64_t>(width_of(index.type)), "{}: elements of {} bytes, but their type has {}", name,
          width, width_of(index.type));
  index.lines = at.next<uint64_t>();
  const auto sizes = at.next<uint64_t>();
  const uint64_t numbers = at.left() / 8;
  require(index.lines < numbers && sizes < numbers && at.left() == (2 * (index.lines + 1) + sizes) * 8,
          "{}: header claims {} lines and {} sizes, for which {} bytes are not right. Was the copy interrupted?", name,
          index.lines, sizes, at.left());
  for (uint64_t i = 0; i <= index.lines; ++i) at.next<int64_t>();  // where each line's sizes are
  int64_t last = 0;
  for (uint64_t line = 0; line <= index.lines; ++line) {
    const auto offset = at.next<int64_t>();
    require(offset >= last && (line > 0 || offset == 0),
            "{}: line {} is said to start at {}, before the end of the one before it ({})", name, line, offset, last);
    last = offset;
  }
  index.tokens = static_cast<uint64_t>(last);
  return index;
}

fs::path with_suffix(fs::path prefix, const char* suffix) { return prefix += suffix; }

// Bytes of text decoded at once, and at most: so many, and for each id. Words of English have 5.
constexpr size_t kDecoded = 1 << 20, kFreeText = 64 << 20, kBytesPerId = 256;

class DecodedText : public TextInput {
 public:
  DecodedText(const TokenFile& ids, const Tokenizer& tokenizer) : ids_(ids), tokenizer_(tokenizer) {}
  size_t read(std::span<char> out) override {
    size_t done = 0;
    while (done < out.size() && (used_ < text_.size() || decode_more())) {
      const size_t n = std::min(out.size() - done, text_.size() - used_);
      std::copy_n(text_.begin() + static_cast<ptrdiff_t>(used_), n, out.begin() + static_cast<ptrdiff_t>(done));
      used_ += n;
      done += n;
    }
    return done;
  }
  uint64_t raw_position() const override { return static_cast<uint64_t>(at_) * static_cast<uint64_t>(ids_.width()); }

 private:
  bool decode_more() {
    if (at_ == ids_.size()) return false;
    bool inside_line = at_ > 0 && !text_.ends_with('\n');
    text_.clear();
    used_ = 0;
    while (at_ < ids_.size() && text_.size() < kDecoded) {
      block_.resize(static_cast<size_t>(std::min<int64_t>(ids_.size() - at_, 64)));
      ids_.read(at_, block_);
      at_ += static_cast<int64_t>(block_.size());
      const size_t before = text_.size();
      if (inside_line && block_[0] != ids_.start_id()) text_ += ' ';
      text_ += tokenizer_.decode(block_);
      inside_line = !text_.ends_with('\n');
      decoded_ += text_.size() - before;
    }
    require(decoded_ <= kFreeText + kBytesPerId * static_cast<uint64_t>(at_),
            "{}: its first {} ids stand for {} bytes of text; at most {} for each and {} MiB more are taken",
            ids_.path().string(), at_, decoded_, kBytesPerId, kFreeText >> 20);
    return true;
  }
  const TokenFile& ids_;
  const Tokenizer& tokenizer_;
  int64_t at_ = 0;        // ids decoded
  uint64_t decoded_ = 0;  // bytes of all their text
  std::vector<int32_t> block_;
  std::string text_;  // of the block
  size_t used_ = 0;
};

}  // namespace

bool is_data_bin(const fs::path& dir) {
  if (!fs::is_regular_file(dir / "dict.txt")) return false;
  std::error_code error;
  const fs::directory_iterator files(dir, error);
  return std::any_of(begin(files), end(files), [](const auto& entry) { return entry.path().extension() == ".idx"; });
}

TokenFile open_data_bin(const fs::path& prefix, const Tokenizer& tokenizer) {
  const MappedFile file(with_suffix(prefix, ".idx"));
  const std::string name = file.path().string();
  Cursor at(file);
  const bool mapped = at.starts_with(kMapped);
  require(mapped || at.starts_with(kLegacy), "{}: not an index of fairseq's", name);
  const Index index = mapped ? read_mapped(at, name) : read_legacy(at, name);

  TokenFile::Parts parts;
  parts.file = MappedFile(with_suffix(prefix, ".bin"));
  parts.type = index.type;
  parts.shift = index.shift;
  const auto width = static_cast<uint64_t>(width_of(index.type));
  require(index.tokens <= parts.file.size() && index.tokens * width == parts.file.size(),
          "{}: has {} bytes, but its index speaks of {} ids of {} bytes. Was the copy interrupted?",
          parts.file.path().string(), parts.file.size(), index.tokens, width);
  require(index.lines <= index.tokens, "{}: {} lines have only {} ids", name, index.lines, index.tokens);
  parts.counts = {
      .tokens = index.tokens, .documents = index.tokens > 0 ? 1u : 0u, .bytes = 0, .words = index.tokens - index.lines};
  parts.tokenizer_hash = tokenizer.hash();
  parts.vocab_size = tokenizer.vocab_size();
  parts.start_id = tokenizer.start_id();
  parts.documents.assign(parts.counts.documents, 0);
  return TokenFile(std::move(parts));
}

std::unique_ptr<TextInput> decoded_text(const TokenFile& ids, const Tokenizer& tokenizer) {
  return std::make_unique<DecodedText>(ids, tokenizer);
}

}  // namespace longshot
