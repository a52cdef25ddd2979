#include "data/tokenizer.h"

#include "base/error.h"
#include "base/records.h"
#include "data/tokenizers.h"

namespace longshot {
namespace {

uint64_t fnv1a(std::string_view bytes) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

// Tokenizer files by name, in the order they are looked for in a directory.
constexpr const char* kFileNames[] = {"tokenizer.byte.json", "tokenizer.dict.txt", "dict.txt"};

}  // namespace

Tokenizer::Tokenizer(std::string file_name, std::string file)
    : file_name_(std::move(file_name)), file_(std::move(file)), hash_(fnv1a(file_)) {}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  make_encoder()->append(text, ids);
  return ids;
}

void Tokenizer::save(const fs::path& dir) const { write_atomically(dir / file_name_, file_); }

void Tokenizer::check(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    require(id >= 0 && id < vocab_size(), "id {} is outside the {} tokenizer's vocabulary of {}", id, name(),
            vocab_size());
  }
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  if (fs::is_directory(path)) {
    for (const char* name : kFileNames) {
      if (fs::exists(path / name)) return load_tokenizer(path / name);
    }
    fail("{}: holds no tokenizer (tokenizer.*, dict.txt)", path.string());
  }
  const std::string origin = path.string();
  std::string text = read_text(path);
  require(!text.empty(), "{}: the file is empty; a tokenizer was expected", origin);
  if (text.find_first_not_of(" \t\r\n") != std::string::npos &&
      text[text.find_first_not_of(" \t\r\n")] == '{') {
    const Json json = parse_json(text, origin);
    if (json.contains("type") && json["type"] == "byte") return byte_tokenizer();
    fail("{}: not a tokenizer this program knows", origin);
  }
  return word_tokenizer(std::move(text), origin);
}

}  // namespace longshot
