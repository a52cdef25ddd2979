// A tokenizer for a model whose vocabulary is larger: embeddings often have more rows than there are tokens, to make their number
// a round one. A model may say such an id; it has no text.
#include <fmt/format.h>

#include "data/tokenizers.h"

namespace longshot {
namespace {

class PaddedTokenizer : public Tokenizer {
 public:
  PaddedTokenizer(std::unique_ptr<Tokenizer> tokens, int rows)
      : Tokenizer(tokens->file_name(), tokens->file()), tokens_(std::move(tokens)), rows_(rows) {}

  std::string_view name() const override { return tokens_->name(); }
  int vocab_size() const override { return tokens_->vocab_size(); }
  int32_t start_id() const override { return tokens_->start_id(); }
  std::unique_ptr<Encoder> make_encoder() const override { return tokens_->make_encoder(); }
  void end_document(char last, std::vector<int32_t>& ids) const override { tokens_->end_document(last, ids); }
  size_t cut(std::string_view text) const override { return tokens_->cut(text); }

  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<int32_t> with_text;
    for (const int32_t id : ids)
      if (!is_padding(id)) with_text.push_back(id);
    return tokens_->decode(with_text);
  }
  std::string token(int32_t id) const override {
    return is_padding(id) ? fmt::format("<padding {}>", id) : tokens_->token(id);
  }

 private:
  bool is_padding(int32_t id) const { return id >= tokens_->vocab_size() && id < rows_; }

  std::unique_ptr<Tokenizer> tokens_;
  int rows_;
};

}  // namespace

std::unique_ptr<Tokenizer> padded_tokenizer(std::unique_ptr<Tokenizer> tokens, int rows) {
  if (tokens->vocab_size() >= rows) return tokens;
  return std::make_unique<PaddedTokenizer>(std::move(tokens), rows);
}

}  // namespace longshot
