#include "data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/hf_tokenizer.h"
#include "data/token_set_dir.h"
#include "data/tokenizers.h"

namespace longshot {
namespace {

uint64_t fnv1a(std::string_view bytes) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

constexpr size_t kLargestFile = 256 << 20;

// Tokenizer files by name, in the order they are looked for in a directory.
constexpr const char* kFileNames[] = {kByteTokenizerFile, kWordTokenizerFile, kHfTokenizerFile, kSentencePieceFile,
                                      "vocab.json",       "vocab.txt",        "dict.txt"};

std::unique_ptr<Tokenizer> load_json(std::string text, const fs::path& path) {
  const std::string origin = path.string();
  const JsonTree json = parse_json_tree(text, origin);
  if (json.contains("type") && json["type"] == "byte") return byte_tokenizer();
  if (json.contains("model") && json["model"].is_object()) return hf_tokenizer(std::move(text), origin);
  // GPT-2's vocab.json has its merges in a second file: merges.txt, or x-merges.txt beside x-vocab.json.
  std::string name = path.filename().string();
  const size_t at = name.find("vocab");
  fs::path merges = path.parent_path() / "merges.txt";
  if (at != std::string::npos) merges = path.parent_path() / name.replace(at, std::string::npos, "merges.txt");
  require(fs::exists(merges), "{}: a vocabulary of BPE needs its merges, but there is no {}", origin, merges.string());
  return hf_tokenizer(gpt2_json(text, read_text(merges), origin), origin);
}

}  // namespace

Tokenizer::Tokenizer(std::string file_name, std::string file)
    : file_name_(std::move(file_name)), file_(std::move(file)), hash_(fnv1a(file_)) {}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const Watch& watch) const {
  std::vector<int32_t> ids;
  const std::unique_ptr<Encoder> encoder = make_encoder();
  encoder->set_watch(watch);
  encoder->append(text, ids);
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
    fail("{}: holds no tokenizer (tokenizer.*, vocab.json, vocab.txt, dict.txt)", path.string());
  }
  const std::string origin = path.string(), name = path.filename().string();
  const MappedFile file(path);
  require(file.size() <= kLargestFile, "{}: {} bytes are too many for a tokenizer (at most {})", origin, file.size(),
          kLargestFile);
  std::string text(file.text());
  require(!text.empty(), "{}: the file is empty; a tokenizer was expected", origin);
  if (path.extension() == ".model") return sentencepiece_tokenizer(std::move(text), origin);
  if (const size_t first = text.find_first_not_of(" \t\r\n"); first != std::string::npos && text[first] == '{') {
    return load_json(std::move(text), path);
  }
  if (name.ends_with("vocab.txt")) return hf_tokenizer(bert_json(text, origin), origin);
  return word_tokenizer(std::move(text), origin);
}

}  // namespace longshot
