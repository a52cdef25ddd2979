// The cut of text into pieces before byte-pair merging, as Hugging Face's tokenizer.json describes it. A
// piece is merged on its own.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/split_pattern.h"

namespace longshot {

class Pretokenizer {
 public:
  using Pieces = std::vector<std::string_view>;
  // Appends the pieces of one text.
  using Step = std::function<void(std::string_view, Pieces&, PatternBudget&)>;

  // What becomes of spaces before the text is cut.
  struct Metaspace {
    enum class Prepend { kNever, kFirst, kAlways };
    std::string replacement = "\u2581";
    Prepend prepend =
        Prepend::kAlways;  // one in front of a text that has none there; kFirst: only if the text begins there
  };

  // GPT-2's own.
  static Pretokenizer gpt2();
  // The "pre_tokenizer" member: ByteLevel, Split, Digits, Punctuation, Metaspace or a Sequence of them.
  static Pretokenizer from_json(const JsonTree& json, const std::string& origin);

  bool is_gpt2() const { return steps_.empty() && gpt2_; }
  bool is_byte_level() const { return byte_level_; }  // tokens are written in stand-ins of bytes
  bool add_prefix_space() const { return add_prefix_space_; }
  const std::optional<Metaspace>& metaspace() const { return metaspace_; }
  void split(std::string_view text, Pieces& pieces, Pieces& scratch, PatternBudget& budget) const;
  // As Tokenizer::cut.
  size_t cut(std::string_view text) const;

 private:
  void add(const JsonTree& json, const std::string& origin);
  void add_step(Step step, const std::string& origin);
  void add_byte_level(const JsonTree& json, const std::string& origin);
  void add_metaspace(const JsonTree& json, const std::string& origin);
  std::vector<Step> steps_;
  bool gpt2_ = false;  // as the last step
  bool byte_level_ = false;
  bool add_prefix_space_ = false;
  std::optional<Metaspace> metaspace_;
};

}  // namespace longshot
