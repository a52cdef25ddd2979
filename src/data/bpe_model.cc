#include "data/bpe_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "data/gpt2_split.h"
#include "data/utf8.h"

namespace longshot {
namespace {

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

int32_t find_unknown(const WordMap& tokens, const JsonTree& model) {
  if (!model.contains("unk_token") || !model["unk_token"].is_string()) return BpeSymbols::kNone;
  const uint32_t id = tokens.find(model["unk_token"].get<std::string>());
  return id == WordMap::kNone ? BpeSymbols::kNone : static_cast<int32_t>(id);
}

BpeSymbols read_bytes(const WordMap& tokens, const JsonTree& model, const std::string& origin) {
  BpeSymbols symbols;
  const int32_t unknown = find_unknown(tokens, model);
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const uint32_t id = tokens.find(byte_level_text({&c, 1}));
    symbols.bytes[byte] = id == WordMap::kNone ? unknown : static_cast<int32_t>(id);
    require(symbols.bytes[byte] != BpeSymbols::kNone, "{}: no token for the byte {:#04x}. Is it byte-level BPE?",
            origin, byte);
  }
  return symbols;
}

BpeSymbols read_characters(const WordMap& tokens, const JsonTree& model, const std::string& origin) {
  BpeSymbols symbols;
  symbols.characters_first = true;
  symbols.unknown = find_unknown(tokens, model);
  symbols.fuse_unknown = model.value("fuse_unk", false);
  symbols.bytes.fill(BpeSymbols::kNone);
  if (model.value("byte_fallback", false)) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t id = tokens.find(fallback_text(static_cast<unsigned char>(byte)));
      require(id != WordMap::kNone, "{}: byte_fallback without a token for the byte {:#04x}", origin, byte);
      symbols.bytes[byte] = static_cast<int32_t>(id);
    }
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens.word(id);
    const CodePoint c = decode_utf8(token.data(), token.data() + token.size());
    if (c.length == token.size() && c.value != kInvalidCodePoint)
      symbols.characters.emplace(c.value, static_cast<int32_t>(id));
  }
  return symbols;
}

void refuse_what_is_not_supported(const JsonTree& model, const std::string& origin) {
  const auto lacks = [&](const char* member, const JsonTree& nothing) {
    return !model.contains(member) || model[member].is_null() || model[member] == nothing;
  };
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    require(lacks(affix, ""), "{}: BPE with a {} is not supported", origin, affix);
  require(lacks("dropout", 0), "{}: BPE with dropout is not supported: its ids are random", origin);
}

void read_added(const JsonTree& json, const Vocabulary& vocabulary, BpeModel& bpe, const std::string& origin) {
  for (size_t i = 0; i < vocabulary.added.size(); ++i) {
    const AddedToken& token = vocabulary.added[i];
    if (token.special) continue;
    const JsonTree& stated = json["added_tokens"][i];
    for (const char* option : {"lstrip", "rstrip", "single_word"}) {
      require(!stated.value(option, false), "{}: the added token '{}' has {}, which is not supported", origin,
              token.text.substr(0, 80), option);
    }
    const bool normalised = stated.value("normalized", true) && !bpe.normalizer.empty();
    const std::string text = normalised ? bpe.normalizer.apply(token.text) : token.text;
    require(!text.empty(), "{}: the added token {} is empty once it is normalised", origin, token.id);
    require(text.size() <= PrefixTree::kLongest,
            "{}: the added token '{}' has {} bytes; at most {} are looked for in text", origin, shown(text),
            text.size(), PrefixTree::kLongest);
    (normalised ? bpe.added : bpe.raw_added).insert(text, token.id);
    bpe.added_span |= gpt2::last_cut(token.text, [](gpt2::Kind kind) { return kind != gpt2::Kind::kSpace; }) > 0;
  }
}

// A text does not grow beyond measure before it is cut.
void check_growth(const BpeModel& bpe, const std::string& origin) {
  constexpr double kMost = 16;
  const auto& metaspace = bpe.pretokenizer.metaspace();
  const double growth = bpe.normalizer.growth() * (metaspace ? static_cast<double>(metaspace->replacement.size()) : 1);
  require(growth <= kMost, "{}: the normalizer{} can make a text {:.0f} times as long; at most {:.0f} times is taken",
          origin, metaspace ? " and Metaspace" : "", growth, kMost);
}

// Whether no merge has `space` behind anything but another one.
bool begins_pieces(const std::string& space, const WordMap& tokens, std::span<const Merge> merges) {
  if (space.empty() || tokens.find(space) == WordMap::kNone) return false;
  return std::ranges::none_of(merges, [&](const Merge& merge) {
    const std::string_view left = tokens.word(static_cast<size_t>(merge.left)),
                           right = tokens.word(static_cast<size_t>(merge.right));
    return !left.ends_with(space) && right.starts_with(space);
  });
}

}  // namespace

BpeModel read_bpe_model(const JsonTree& json, const Vocabulary& vocabulary, const std::string& origin) {
  const JsonTree& model = json["model"];
  refuse_what_is_not_supported(model, origin);
  WordMap tokens;  // index = id; ids without a token get a name no token has
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    std::string name = vocabulary.tokens[id];
    if (name.empty()) name = fmt::format("\xFF no token {}", id);
    require(tokens.insert(name) == id, "{}: the token '{}' has two ids", origin, name.substr(0, 80));
  }
  const auto member = [&](const char* name) { return json.contains(name) ? json[name] : JsonTree(); };
  Pretokenizer pretokenizer = Pretokenizer::from_json(member("pre_tokenizer"), origin);
  const bool bytes = pretokenizer.is_byte_level();
  const std::vector<Merge> merges = read_merges(model, tokens, origin);
  BpeModel bpe{.normalizer = Normalizer::from_json(member("normalizer"), origin),
               .pretokenizer = std::move(pretokenizer),
               .symbols = bytes ? read_bytes(tokens, model, origin) : read_characters(tokens, model, origin),
               .merges = BpeMerges(merges),
               .ignore_merges = model.value("ignore_merges", false)};
  check_growth(bpe, origin);
  if (!bytes) {
    bpe.space = bpe.pretokenizer.metaspace() ? bpe.pretokenizer.metaspace()->replacement : bpe.normalizer.space();
    bpe.space_begins = !bpe.ignore_merges && begins_pieces(bpe.space, tokens, merges);
  }
  read_added(json, vocabulary, bpe, origin);
  if (bpe.ignore_merges) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      std::string text = vocabulary.tokens[id];
      if (bytes && !byte_level_bytes(vocabulary.tokens[id], text)) continue;
      if (!text.empty() && bpe.tokens.insert(text) == bpe.ids_of.size()) bpe.ids_of.push_back(static_cast<int32_t>(id));
    }
  }
  return bpe;
}

std::vector<std::string> bpe_texts(const BpeModel& model, const Vocabulary& vocabulary) {
  std::vector<std::string> texts(vocabulary.tokens);
  for (std::string& text : texts) {
    std::string bytes;
    if (model.symbols.characters_first) {
      text = replaced(text, model.space, " ");
    } else if (byte_level_bytes(text, bytes)) {
      text = bytes;
    }
  }
  for (const AddedToken& token : vocabulary.added) texts[static_cast<size_t>(token.id)] = token.text;
  if (model.symbols.characters_first && model.symbols.bytes[0] != BpeSymbols::kNone) {
    for (size_t byte = 0; byte < 256; ++byte)
      texts[static_cast<size_t>(model.symbols.bytes[byte])] = std::string(1, static_cast<char>(byte));
  }
  return texts;
}

}  // namespace longshot
