#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "data/hf_tokenizer.h"
#include "data/prefix_tree.h"
#include "data/token_set_dir.h"
#include "data/tokenizers.h"
#include "data/unicode.h"

namespace longshot {
namespace {

struct WordPieceModel {
  WordMap tokens;             // index = id
  PrefixTree first, further;  // what a word may begin with, and go on with: those behind the prefix
  std::string prefix = "##";
  int32_t unknown = 0;
  size_t longest_word = 100;  // characters
  // BERT's normaliser.
  bool clean = true, chinese = true, strip_accents = true, lowercase = true;
};

// Control characters that BERT drops; tab, newline and carriage return are spaces to it.
bool is_dropped(uint32_t c) {
  if (c == 0 || c == 0xFFFD || c == 0x0B || c == 0x0C || c == 0x85) return true;
  return char_class(c) == CharClass::kControl;
}

bool is_chinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_punctuation(uint32_t c) {
  if (c < 128)
    return c > 32 && c < 127 && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
  return char_class(c) == CharClass::kPunctuation;
}

class WordPieceEncoder : public Encoder {
 public:
  explicit WordPieceEncoder(const WordPieceModel& model) : model_(model) {}

  void append(std::string_view text, std::vector<int32_t>& ids) override {
    const std::u32string normal = normalised(text);
    std::u32string_view rest = normal;
    while (!rest.empty()) {
      if (char_class(rest[0]) == CharClass::kSpace) {
        rest.remove_prefix(1);
        continue;
      }
      size_t end = 1;
      if (!is_punctuation(rest[0])) {
        while (end < rest.size() && char_class(rest[end]) != CharClass::kSpace && !is_punctuation(rest[end])) ++end;
      }
      append_word(rest.substr(0, end), ids);
      rest.remove_prefix(end);
    }
  }

 private:
  std::u32string normalised(std::string_view text) {
    std::string cleaned;
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
      CodePoint c = decode_utf8(p, end);
      p += c.length;
      passed(c.length);
      if (c.value == kInvalidCodePoint) c.value = 0xFFFD;
      if (model_.clean) {
        if (is_dropped(c.value)) continue;
        if (char_class(c.value) == CharClass::kSpace) c.value = ' ';
      }
      const bool apart = model_.chinese && is_chinese(c.value);
      if (apart) cleaned += ' ';
      append_utf8(c.value, cleaned);
      if (apart) cleaned += ' ';
    }
    std::u32string out;
    if (model_.strip_accents) {
      out = nfd(cleaned);
      std::erase_if(out, [](char32_t c) { return char_class(c) == CharClass::kNonspacingMark; });
    } else {
      for (const char *p = cleaned.data(), *end = p + cleaned.size(); p < end;) {
        const CodePoint c = decode_utf8(p, end);
        out += static_cast<char32_t>(c.value);
        p += c.length;
      }
    }
    if (!model_.lowercase) return out;
    std::u32string lower;
    for (const char32_t c : out) append_lower(c, lower);
    return lower;
  }

  // The longest token that fits, again and again; the whole word is unknown if at some place none does.
  void append_word(std::u32string_view word, std::vector<int32_t>& ids) {
    if (word.size() > model_.longest_word) return ids.push_back(model_.unknown);
    text_.clear();
    for (const char32_t c : word) append_utf8(c, text_);
    const size_t before = ids.size();
    passed(text_.size());
    for (std::string_view rest = text_; !rest.empty();) {
      const auto [id, length] = (ids.size() == before ? model_.first : model_.further).longest(rest);
      if (id < 0) {
        ids.resize(before);
        return ids.push_back(model_.unknown);
      }
      ids.push_back(id);
      rest.remove_prefix(length);
    }
  }

  const WordPieceModel& model_;
  std::string text_;
};

class WordPieceTokenizer : public Tokenizer {
 public:
  WordPieceTokenizer(std::string json, int32_t end, WordPieceModel model)
      : Tokenizer(kHfTokenizerFile, std::move(json)), end_(end), model_(std::move(model)) {}
  std::string_view name() const override { return "wordpiece"; }
  int vocab_size() const override { return static_cast<int>(model_.tokens.size()); }
  int32_t start_id() const override { return end_; }
  std::unique_ptr<Encoder> make_encoder() const override { return std::make_unique<WordPieceEncoder>(model_); }
  void end_document(char, std::vector<int32_t>& ids) const override { ids.push_back(end_); }
  size_t cut(std::string_view text) const override { return cut_behind_space(text); }
  // Words apart by one space: the text as BERT's normaliser and pre-tokenizer leave it.
  std::string decode(std::span<const int32_t> ids) const override {
    check(ids);
    std::string text;
    for (const int32_t id : ids) {
      const std::string_view token = model_.tokens.word(static_cast<size_t>(id));
      if (token.starts_with(model_.prefix) && token.size() > model_.prefix.size()) {
        text += token.substr(model_.prefix.size());
      } else {
        if (!text.empty()) text += ' ';
        text += token;
      }
    }
    return text;
  }
  std::string token(int32_t id) const override {
    check({&id, 1});
    return std::string(model_.tokens.word(static_cast<size_t>(id)));
  }

 private:
  int32_t end_;
  WordPieceModel model_;
};

void read_normaliser(const JsonTree& json, WordPieceModel& model, const std::string& origin) {
  if (!json.contains("normalizer") || json["normalizer"].is_null()) {
    model.clean = model.chinese = model.strip_accents = model.lowercase = false;
    return;
  }
  const JsonTree& n = json["normalizer"];
  const std::string type = n.value("type", "");
  require(type == "BertNormalizer", "{}: the normalizer '{}' is not supported for WordPiece (BertNormalizer)", origin,
          type);
  model.clean = n.value("clean_text", true);
  model.chinese = n.value("handle_chinese_chars", true);
  model.lowercase = n.value("lowercase", true);
  const bool stated = n.contains("strip_accents") && n["strip_accents"].is_boolean();
  model.strip_accents = stated ? n["strip_accents"].get<bool>() : model.lowercase;
}

}  // namespace

std::unique_ptr<Tokenizer> wordpiece_tokenizer(std::string text, const JsonTree& json, const std::string& origin) {
  const Vocabulary vocabulary = read_vocabulary(json, origin);
  const JsonTree& m = json["model"];
  WordPieceModel model;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    std::string name = vocabulary.tokens[id];
    if (name.empty()) name = fmt::format("\xFF no token {}", id);
    require(model.tokens.insert(name) == id, "{}: the token '{}' has two ids", origin, name.substr(0, 80));
  }
  read_normaliser(json, model, origin);
  require(!json.contains("pre_tokenizer") || !json["pre_tokenizer"].is_object() ||
              json["pre_tokenizer"].value("type", "") == "BertPreTokenizer",
          "{}: WordPiece is supported with BertPreTokenizer only", origin);
  model.prefix = m.value("continuing_subword_prefix", "##");
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (token.empty()) continue;
    require(token.size() <= PrefixTree::kLongest, "{}: the token '{}' has {} bytes; at most {} are taken", origin,
            shown(token), token.size(), PrefixTree::kLongest);
    model.first.insert(token, static_cast<int32_t>(id));
    if (token.starts_with(model.prefix) && token.size() > model.prefix.size())
      model.further.insert(token.substr(model.prefix.size()), static_cast<int32_t>(id));
  }
  const int64_t longest = m.value("max_input_chars_per_word", int64_t{100});
  require(longest > 0 && longest <= 10000, "{}: max_input_chars_per_word is {}", origin, longest);
  model.longest_word = static_cast<size_t>(longest);
  const auto find = [&](const std::string& token) {
    const uint32_t id = model.tokens.find(token);
    require(id != WordMap::kNone, "{}: the vocabulary has no {}", origin, token);
    return static_cast<int32_t>(id);
  };
  model.unknown = find(m.value("unk_token", "[UNK]"));
  const int32_t end = find("[SEP]");
  return std::make_unique<WordPieceTokenizer>(std::move(text), end, std::move(model));
}

}  // namespace longshot
