#include <algorithm>

#include "data/token_set_dir.h"
#include "data/tokenizers.h"
#include "data/utf8.h"

namespace longshot {
namespace {

class ByteEncoder : public Encoder {
 public:
  void append(std::string_view text, std::vector<int32_t>& ids) override {
    const size_t first = ids.size();
    ids.resize(first + text.size());
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    for (size_t i = 0; i < text.size(); ++i) ids[first + i] = bytes[i];
  }
};

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer(kByteTokenizerFile, "{\"type\": \"byte\"}\n") {}
  std::string_view name() const override { return "byte"; }
  int vocab_size() const override { return 256; }
  int32_t start_id() const override { return '\n'; }
  std::unique_ptr<Encoder> make_encoder() const override { return std::make_unique<ByteEncoder>(); }
  void end_document(char last, std::vector<int32_t>& ids) const override {
    if (last != '\n') ids.push_back('\n');
  }
  size_t cut(std::string_view text) const override {
    if (const size_t at = cut_behind_space(text)) return at;
    // Anywhere, but not inside a character: the last one may be unfinished.
    for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
      if (static_cast<unsigned char>(text[text.size() - back]) >= 0xC0) return text.size() - back;
    }
    return text.size();
  }
  std::string decode(std::span<const int32_t> ids) const override {
    check(ids);
    return std::string(ids.begin(), ids.end());
  }
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace longshot
