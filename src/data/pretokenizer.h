// The cut of text into pieces before byte-pair merging, as Hugging Face's tokenizer.json describes it. A
// piece is merged on its own.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace longshot {

class Pretokenizer {
 public:
  using Pieces = std::vector<std::string_view>;
  // Appends the pieces of one text.
  using Step = std::function<void(std::string_view, Pieces&)>;

  // GPT-2's own.
  static Pretokenizer gpt2();
  // The "pre_tokenizer" member: ByteLevel, Split, Digits, Punctuation or a Sequence of them.
  static Pretokenizer from_json(const JsonTree& json, const std::string& origin);

  bool is_gpt2() const { return steps_.empty() && gpt2_; }
  bool add_prefix_space() const { return add_prefix_space_; }
  void split(std::string_view text, Pieces& pieces, Pieces& scratch) const;
  // As Tokenizer::cut.
  size_t cut(std::string_view text) const;

 private:
  void add(const JsonTree& json, const std::string& origin);
  std::vector<Step> steps_;
  bool gpt2_ = false;  // as the last step
  bool add_prefix_space_ = false;
};

}  // namespace longshot
