#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "data/bpe_model.h"
#include "data/gpt2_split.h"
#include "data/token_set_dir.h"
#include "data/tokenizers.h"

namespace longshot {
namespace {

constexpr size_t kLongestCached = 64;      // bytes of a piece
constexpr size_t kMostCached = 1 << 17;    // pieces
constexpr size_t kLongestPiece = 1 << 16;  // longer ones, which no text has, are cut: time and memory stay small

class BpeEncoder : public Encoder {
 public:
  explicit BpeEncoder(const BpeModel& model) : model_(model) {}

  void append(std::string_view text, std::vector<int32_t>& ids) override {
    PatternBudget budget(watch());
    around(model_.raw_added, text, ids, [&](std::string_view part) {
      const bool first = part.data() == text.data();
      if (model_.normalizer.empty()) return append_plain(part, first, ids, budget);
      normalised_ = model_.normalizer.apply(part, watch());
      const char* begin = normalised_.data();
      around(model_.added, normalised_, ids,
             [&](std::string_view plain) { append_plain(plain, first && plain.data() == begin, ids, budget); });
    });
  }

 private:
  // The ids of added tokens, and other(what stands between them).
  template <class Other>
  void around(const PrefixTree& added, std::string_view text, std::vector<int32_t>& ids, Other other) {
    size_t plain = 0;
    for (size_t at = 0; !added.empty() && at < text.size();) {
      const auto [id, length] = added.longest(text.substr(at));
      passed(1);
      if (id < 0) {
        ++at;
        continue;
      }
      if (at > plain) other(text.substr(plain, at - plain));
      ids.push_back(id);
      plain = at += length;
    }
    if (plain < text.size()) other(text.substr(plain));
  }

  void append_plain(std::string_view text, bool first, std::vector<int32_t>& ids, PatternBudget& budget) {
    if (text.empty()) return;
    // Text that goes on starts with a space (cut()), so the prefix stands only in front of a document.
    if (model_.pretokenizer.add_prefix_space() && text[0] != ' ') {
      prefixed_.assign(1, ' ').append(text);
      text = prefixed_;
    }
    if (const auto& metaspace = model_.pretokenizer.metaspace()) {
      using enum Pretokenizer::Metaspace::Prepend;
      prefixed_ = replaced(text, " ", metaspace->replacement);
      const bool wanted = metaspace->prepend == kAlways || (metaspace->prepend == kFirst && first);
      if (wanted && !prefixed_.starts_with(metaspace->replacement)) prefixed_.insert(0, metaspace->replacement);
      text = prefixed_;
    }
    if (model_.pretokenizer.is_gpt2()) {
      for (const char *p = text.data(), *end = p + text.size(); p < end;) {
        const char* next = gpt2::piece_end(p, end);
        append_piece({p, static_cast<size_t>(next - p)}, ids);
        p = next;
      }
    } else {
      model_.pretokenizer.split(text, pieces_, scratch_pieces_, budget);
      for (const std::string_view piece : pieces_) append_words(piece, ids);
    }
  }

  // A piece in parts that no merge joins.
  void append_words(std::string_view piece, std::vector<int32_t>& ids) {
    while (model_.space_begins && !piece.empty()) {
      size_t end = 0;
      while (piece.substr(end).starts_with(model_.space)) end += model_.space.size();
      end = std::min(piece.find(model_.space, end), piece.size());
      append_piece(piece.substr(0, end), ids);
      piece.remove_prefix(end);
    }
    if (!piece.empty()) append_piece(piece, ids);
  }

  void append_piece(std::string_view piece, std::vector<int32_t>& ids) {
    passed(piece.size());
    if (piece.size() > kLongestCached) {
      for (; piece.size() > kLongestPiece; piece.remove_prefix(kLongestPiece)) {
        merge(piece.substr(0, kLongestPiece), ids);
        passed(kLongestPiece);
      }
      return merge(piece, ids);
    }
    if (piece.size() == 1 && !model_.symbols.characters_first) return ids.push_back(model_.symbols.byte(piece[0]));
    if (cached_.size() >= kMostCached) {
      cached_.clear();
      ranges_.clear();
      cached_ids_.clear();
    }
    const uint32_t index = cached_.insert(piece);
    if (index == ranges_.size()) {
      const auto begin = static_cast<uint32_t>(cached_ids_.size());
      merge(piece, cached_ids_);
      ranges_.push_back({begin, static_cast<uint32_t>(cached_ids_.size()) - begin});
    }
    const auto [begin, count] = ranges_[index];
    for (uint32_t i = 0; i < count; ++i) ids.push_back(cached_ids_[begin + i]);
  }

  void merge(std::string_view piece, std::vector<int32_t>& ids) {
    if (model_.ignore_merges) {
      if (const uint32_t known = model_.tokens.find(piece); known != WordMap::kNone)
        return ids.push_back(model_.ids_of[known]);
    }
    merge_scratch_.ids.clear();
    model_.symbols.append(piece, merge_scratch_.ids);
    model_.merges.append(merge_scratch_, ids);
  }

  struct Range {
    uint32_t begin, count;
  };
  const BpeModel& model_;
  WordMap cached_;
  std::vector<Range> ranges_;  // of cached_, in cached_ids_
  std::vector<int32_t> cached_ids_;
  BpeMerges::Scratch merge_scratch_;
  Pretokenizer::Pieces pieces_, scratch_pieces_;
  std::string normalised_, prefixed_;
};

class BpeTokenizer : public Tokenizer {
 public:
  struct Ends {
    int32_t start, end;
  };
  BpeTokenizer(std::string json, std::vector<std::string> texts, Ends ends, BpeModel model)
      : Tokenizer(kHfTokenizerFile, std::move(json)), texts_(std::move(texts)), ends_(ends), model_(std::move(model)) {}
  std::string_view name() const override { return "bpe"; }
  int vocab_size() const override { return static_cast<int>(texts_.size()); }
  int32_t start_id() const override { return ends_.start; }
  std::unique_ptr<Encoder> make_encoder() const override { return std::make_unique<BpeEncoder>(model_); }
  void end_document(char, std::vector<int32_t>& ids) const override { ids.push_back(ends_.end); }
  size_t cut(std::string_view text) const override {
    if (model_.added_span || model_.normalizer.prepends()) return 0;
    if (!model_.symbols.characters_first) return model_.pretokenizer.cut(text);
    if (!model_.space_begins) return 0;
    size_t at = text.rfind(' ');
    while (at != std::string_view::npos && at > 0 && text[at - 1] == ' ') --at;
    return at == std::string_view::npos ? 0 : at;
  }
  std::string decode(std::span<const int32_t> ids) const override {
    check(ids);
    std::string text;
    for (const int32_t id : ids) text += texts_[static_cast<size_t>(id)];
    const auto& metaspace = model_.pretokenizer.metaspace();
    const bool prefixed =
        model_.normalizer.prepends() || (metaspace && metaspace->prepend != Pretokenizer::Metaspace::Prepend::kNever);
    return prefixed && text.starts_with(' ') ? text.substr(1) : text;
  }
  std::string token(int32_t id) const override {
    check({&id, 1});
    return texts_[static_cast<size_t>(id)];
  }

 private:
  std::vector<std::string> texts_;  // of each id
  Ends ends_;
  BpeModel model_;
};

// The token between documents.
int32_t find_end(const Vocabulary& vocabulary, const std::string& origin) {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"}) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      if (vocabulary.tokens[id] == name) return static_cast<int32_t>(id);
    }
  }
  for (const AddedToken& token : vocabulary.added) {
    if (token.special) return token.id;
  }
  fail("{}: no token ends a document (<|endoftext|>, </s>)", origin);
}

// The token that the template of a post-processor puts in front of a text; without one, the end of the document before.
int32_t find_start(const JsonTree& processor, int32_t end, size_t vocabulary) {
  if (!processor.is_object()) return end;
  if (processor.contains("processors") && processor["processors"].is_array()) {
    for (const JsonTree& part : processor["processors"]) {
      if (const int32_t start = find_start(part, end, vocabulary); start != end) return start;
    }
    return end;
  }
  if (processor.value("type", "") != "TemplateProcessing") return end;
  const JsonTree& first = processor.at("single").at(0);
  if (!first.contains("SpecialToken")) return end;
  const JsonTree& id = processor.at("special_tokens").at(first["SpecialToken"].value("id", "")).at("ids").at(0);
  return id.is_number_integer() && id >= 0 && id < vocabulary ? id.get<int32_t>() : end;
}

}  // namespace

std::unique_ptr<Tokenizer> bpe_tokenizer(std::string text, const JsonTree& json, const std::string& origin) {
  const Vocabulary vocabulary = read_vocabulary(json, origin);
  BpeModel model = read_bpe_model(json, vocabulary, origin);
  const int32_t end = find_end(vocabulary, origin);
  const JsonTree processor = json.contains("post_processor") ? json["post_processor"] : JsonTree();
  const int32_t start = find_start(processor, end, vocabulary.tokens.size());
  std::vector<std::string> texts = bpe_texts(model, vocabulary);
  return std::make_unique<BpeTokenizer>(std::move(text), std::move(texts), BpeTokenizer::Ends{start, end},
                                        std::move(model));
}

}  // namespace longshot
