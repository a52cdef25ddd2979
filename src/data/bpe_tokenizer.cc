#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "data/bpe.h"
#include "data/gpt2_split.h"
#include "data/hf_tokenizer.h"
#include "data/prefix_tree.h"
#include "data/pretokenizer.h"
#include "data/tokenizers.h"
#include "data/unicode.h"

namespace longshot {
namespace {

constexpr size_t kLongestCached = 64;      // bytes of a piece
constexpr size_t kMostCached = 1 << 17;    // pieces
constexpr size_t kLongestPiece = 1 << 16;  // longer ones, which no text has, are cut: time and memory stay small

// What encoding needs; shared by all encoders.
struct BpeModel {
  Pretokenizer pretokenizer;
  BpeMerges merges;
  bool ignore_merges = false;  // a piece that is a token is taken whole
  bool normalise = false;      // NFC
  WordMap tokens;              // bytes to ids_of, only with ignore_merges
  std::vector<int32_t> ids_of;
  PrefixTree added;         // found in text before anything else: not the special ones
  bool added_span = false;  // one of them has a place inside where text is cut
};

class BpeEncoder : public Encoder {
 public:
  explicit BpeEncoder(const BpeModel& model) : model_(model) {}

  void append(std::string_view text, std::vector<int32_t>& ids) override {
    if (model_.normalise) {
      normalised_ = nfc(text);
      text = normalised_;
    }
    if (model_.added.empty()) return append_plain(text, ids);
    size_t plain = 0;
    for (size_t at = 0; at < text.size();) {
      const auto [id, length] = model_.added.longest(text.substr(at));
      if (id < 0) {
        ++at;
        continue;
      }
      append_plain(text.substr(plain, at - plain), ids);
      ids.push_back(id);
      plain = at += length;
    }
    append_plain(text.substr(plain), ids);
  }

 private:
  void append_plain(std::string_view text, std::vector<int32_t>& ids) {
    if (text.empty()) return;
    // Text that goes on starts with a space (cut()), so the prefix stands only in front of a document.
    if (model_.pretokenizer.add_prefix_space() &&
        gpt2::char_at(text.data(), text.data() + text.size()).kind != gpt2::Kind::kSpace) {
      prefixed_.assign(1, ' ').append(text);
      text = prefixed_;
    }
    if (model_.pretokenizer.is_gpt2()) {
      for (const char *p = text.data(), *end = p + text.size(); p < end;) {
        const char* next = gpt2::piece_end(p, end);
        append_piece({p, static_cast<size_t>(next - p)}, ids);
        p = next;
      }
    } else {
      model_.pretokenizer.split(text, pieces_, scratch_pieces_);
      for (const std::string_view piece : pieces_) append_piece(piece, ids);
    }
  }

  void append_piece(std::string_view piece, std::vector<int32_t>& ids) {
    if (piece.size() > kLongestCached) {
      for (; piece.size() > kLongestPiece; piece.remove_prefix(kLongestPiece))
        merge(piece.substr(0, kLongestPiece), ids);
      return merge(piece, ids);
    }
    if (piece.size() == 1) return ids.push_back(model_.merges.byte_id(piece[0]));
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
    model_.merges.append(piece, merge_scratch_, ids);
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
  BpeTokenizer(std::string json, std::vector<std::string> bytes, int32_t end, BpeModel model)
      : Tokenizer("tokenizer.json", std::move(json)), bytes_(std::move(bytes)), end_(end), model_(std::move(model)) {}
  std::string_view name() const override { return "bpe"; }
  int vocab_size() const override { return static_cast<int>(bytes_.size()); }
  int32_t start_id() const override { return end_; }
  std::unique_ptr<Encoder> make_encoder() const override { return std::make_unique<BpeEncoder>(model_); }
  void end_document(char, std::vector<int32_t>& ids) const override { ids.push_back(end_); }
  size_t cut(std::string_view text) const override { return model_.added_span ? 0 : model_.pretokenizer.cut(text); }
  std::string decode(std::span<const int32_t> ids) const override {
    check(ids);
    std::string text;
    for (const int32_t id : ids) text += bytes_[static_cast<size_t>(id)];
    return text;
  }

 private:
  std::vector<std::string> bytes_;  // of each id
  int32_t end_;
  BpeModel model_;
};

std::vector<Merge> read_merges(const JsonTree& model, const WordMap& tokens, const std::string& origin) {
  require(model.contains("merges") && model["merges"].is_array(), "{}: has no model.merges", origin);
  std::vector<Merge> merges;
  const auto id = [&](const std::string& token) {
    const uint32_t found = tokens.find(token);
    require(found != WordMap::kNone, "{}: merge {} speaks of '{}', which is not in the vocabulary", origin,
            merges.size(), token.substr(0, 80));
    return static_cast<int32_t>(found);
  };
  for (const JsonTree& merge : model["merges"]) {
    std::string left, right;
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const size_t space = text.find(' ');
      require(space != std::string::npos, "{}: merge {} ('{}') is not two tokens", origin, merges.size(),
              text.substr(0, 80));
      left = text.substr(0, space), right = text.substr(space + 1);
    } else {
      require(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
              "{}: merge {} is not two tokens", origin, merges.size());
      left = merge[0], right = merge[1];
    }
    merges.push_back({id(left), id(right), id(left + right)});
  }
  return merges;
}

std::array<int32_t, 256> read_byte_ids(const WordMap& tokens, const JsonTree& model, const std::string& origin) {
  std::array<int32_t, 256> ids{};
  const uint32_t unknown = model.contains("unk_token") && model["unk_token"].is_string()
                               ? tokens.find(model["unk_token"].get<std::string>())
                               : WordMap::kNone;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    uint32_t id = tokens.find(byte_level_text({&c, 1}));
    if (id == WordMap::kNone) id = unknown;
    require(id != WordMap::kNone, "{}: no token for the byte {:#04x}. Is it byte-level BPE?", origin, byte);
    ids[byte] = static_cast<int32_t>(id);
  }
  return ids;
}

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

bool wants_nfc(const JsonTree& json, const std::string& origin) {
  if (!json.contains("normalizer") || json["normalizer"].is_null()) return false;
  const std::string type = json["normalizer"].value("type", "");
  require(type == "NFC", "{}: the normalizer '{}' is not supported for byte-level BPE (none, NFC)", origin, type);
  return true;
}

}  // namespace

std::unique_ptr<Tokenizer> bpe_tokenizer(std::string text, const JsonTree& json, const std::string& origin) {
  const Vocabulary vocabulary = read_vocabulary(json, origin);
  const JsonTree& model = json["model"];
  WordMap tokens;  // index = id; ids without a token get a name no token has
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    std::string name = vocabulary.tokens[id];
    if (name.empty()) name = fmt::format("\xFF no token {}", id);
    require(tokens.insert(name) == id, "{}: the token '{}' has two ids", origin, name.substr(0, 80));
  }
  std::vector<std::string> bytes(vocabulary.tokens.size());
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (!byte_level_bytes(vocabulary.tokens[id], bytes[id])) bytes[id] = vocabulary.tokens[id];
  }
  for (const AddedToken& token : vocabulary.added) bytes[static_cast<size_t>(token.id)] = token.text;

  BpeModel bpe{.pretokenizer = json.contains("pre_tokenizer") ? Pretokenizer::from_json(json["pre_tokenizer"], origin)
                                                              : Pretokenizer{},
               .merges = BpeMerges(read_byte_ids(tokens, model, origin), read_merges(model, tokens, origin)),
               .ignore_merges = model.value("ignore_merges", false),
               .normalise = wants_nfc(json, origin),
               .tokens = {},
               .ids_of = {},
               .added = {}};
  if (bpe.ignore_merges) {
    for (size_t id = 0; id < bytes.size(); ++id) {
      if (!bytes[id].empty() && bpe.tokens.insert(bytes[id]) == bpe.ids_of.size())
        bpe.ids_of.push_back(static_cast<int32_t>(id));
    }
  }
  for (const AddedToken& token : vocabulary.added) {
    if (token.special) continue;
    bpe.added.insert(token.text, token.id);
    bpe.added_span |= gpt2::last_cut(token.text, [](gpt2::Kind kind) { return kind != gpt2::Kind::kSpace; }) > 0;
  }
  return std::make_unique<BpeTokenizer>(std::move(text), std::move(bytes), find_end(vocabulary, origin),
                                        std::move(bpe));
}

}  // namespace longshot
