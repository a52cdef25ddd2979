#include "data/hf_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/json_problem.h"
#include "base/printable.h"
#include "data/tokenizers.h"
#include "data/utf8.h"

namespace longshot {
namespace {

constexpr int64_t kMostTokens = 16'000'000;

// Printable bytes stand for themselves; the n-th of the others is U+0100 + n.
bool is_printable(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

const std::array<uint32_t, 256>& code_point_of_byte() {
  static const auto table = [] {
    std::array<uint32_t, 256> out{};
    uint32_t next = 256;
    for (int byte = 0; byte < 256; ++byte)
      out[static_cast<size_t>(byte)] = is_printable(byte) ? static_cast<uint32_t>(byte) : next++;
    return out;
  }();
  return table;
}

std::string_view next_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

JsonTree added_token(int32_t id, const std::string& text, bool special) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

JsonTree byte_level_bpe(JsonTree vocab, JsonTree merges, JsonTree added) {
  const JsonTree byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"vocab", std::move(vocab)},
            {"merges", std::move(merges)}}}};
}

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(code_point_of_byte()[static_cast<unsigned char>(c)], text);
  return text;
}

bool byte_level_bytes(std::string_view text, std::string& bytes) {
  static const auto byte_of = [] {
    std::unordered_map<uint32_t, char> map;
    for (size_t byte = 0; byte < 256; ++byte) map.emplace(code_point_of_byte()[byte], static_cast<char>(byte));
    return map;
  }();
  bytes.clear();
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const CodePoint c = decode_utf8(p, end);
    const auto found = byte_of.find(c.value);
    if (found == byte_of.end()) return false;
    bytes += found->second;
    p += c.length;
  }
  return true;
}

std::string fallback_text(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

Vocabulary read_vocabulary(const JsonTree& json, const std::string& origin) {
  require(json.contains("model") && json["model"].is_object() && json["model"].contains("vocab") &&
              json["model"]["vocab"].is_object(),
          "{}: has no model.vocab with an id for every token", origin);
  Vocabulary out;
  std::vector<bool> taken;
  const auto put = [&](const JsonTree& id, const std::string& text, bool again) {
    require(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < kMostTokens,
            "{}: token '{}' has the id {}, which is not a number in [0, {})", origin, text.substr(0, 80), id.dump(),
            kMostTokens);
    const auto at = id.get<size_t>();
    if (at >= out.tokens.size()) out.tokens.resize(at + 1), taken.resize(at + 1);
    require(!taken[at] || again, "{}: tokens '{}' and '{}' have one id, {}", origin, out.tokens[at].substr(0, 80),
            text.substr(0, 80), at);
    out.tokens[at] = text;
    taken[at] = true;
  };
  const JsonTree& vocab = json["model"]["vocab"];
  // As many ids as tokens, or few more: a huge id must not ask for huge memory.
  for (const auto& [text, id] : vocab.items()) {
    require(!id.is_number_integer() || id.get<int64_t>() < static_cast<int64_t>(vocab.size()) * 2 + 65536,
            "{}: token '{}' has the id {}, but there are only {} tokens", origin, text.substr(0, 80), id.dump(),
            vocab.size());
    put(id, text, false);
  }
  if (json.contains("added_tokens") && json["added_tokens"].is_array()) {
    for (const JsonTree& token : json["added_tokens"]) {
      require(token.is_object() && token.contains("id") && token.contains("content") && token["content"].is_string(),
              "{}: an added token lacks its id or content", origin);
      const auto text = token["content"].get<std::string>();
      require(!token["id"].is_number_integer() ||
                  token["id"].get<int64_t>() < static_cast<int64_t>(vocab.size()) * 2 + 65536,
              "{}: added token '{}' has the id {}, but there are only {} tokens", origin, text.substr(0, 80),
              token["id"].dump(), vocab.size());
      put(token["id"], text, true);
      require(!text.empty(), "{}: the added token {} is empty", origin, token["id"].dump());
      out.added.push_back({token["id"].get<int32_t>(), text, token.contains("special") && token["special"] == true});
    }
  }
  require(!out.tokens.empty(), "{}: the vocabulary is empty", origin);
  return out;
}

std::string gpt2_json(const std::string& vocab_json, const std::string& merges_txt, const std::string& origin) {
  const JsonTree vocab = parse_json_tree(vocab_json, origin);
  require(vocab.is_object(), "{}: not an object of tokens and ids", origin);
  JsonTree merges = JsonTree::array();
  size_t number = 0;
  for (std::string_view rest = merges_txt; !rest.empty();) {
    const std::string_view line = next_line(rest);
    require(find_invalid_utf8(line).bytes == 0, "the merges of {}, line {}: '{}' is not UTF-8", origin, ++number,
            printable(line.substr(0, 80)));
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(std::string(line));
  }
  JsonTree added = JsonTree::array();
  for (const char* special : {"<|endoftext|>", "</s>"}) {
    if (vocab.contains(special) && vocab[special].is_number_integer())
      added.push_back(added_token(vocab[special].get<int32_t>(), special));
  }
  return dump_json(byte_level_bpe(vocab, std::move(merges), std::move(added)), 1) + "\n";
}

std::string bert_json(const std::string& vocab_txt, const std::string& origin) {
  JsonTree vocab = JsonTree::object();
  int32_t id = 0;
  bool lowercase = true;
  for (std::string_view rest = vocab_txt; !rest.empty(); ++id) {
    const std::string_view line = next_line(rest);
    require(find_invalid_utf8(line).bytes == 0, "{}, line {}: '{}' is not UTF-8", origin, id + 1,
            printable(line.substr(0, 80)));
    const std::string token(line);
    require(!vocab.contains(token), "{}, line {}: the token '{}' stands there a second time", origin, id + 1,
            token.substr(0, 80));
    if (!line.starts_with('[')) lowercase &= std::ranges::none_of(line, [](char c) { return c >= 'A' && c <= 'Z'; });
    vocab[token] = id;
  }
  require(vocab.contains("[UNK]"), "{}: has no [UNK]. Is it BERT's vocab.txt?", origin);
  JsonTree added = JsonTree::array();
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (vocab.contains(special)) added.push_back(added_token(vocab[special].get<int32_t>(), special));
  }
  const JsonTree json{{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", added},
                      {"normalizer",
                       {{"type", "BertNormalizer"},
                        {"clean_text", true},
                        {"handle_chinese_chars", true},
                        {"strip_accents", nullptr},
                        {"lowercase", lowercase}}},
                      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                      {"post_processor", nullptr},
                      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                      {"model",
                       {{"type", "WordPiece"},
                        {"unk_token", "[UNK]"},
                        {"continuing_subword_prefix", "##"},
                        {"max_input_chars_per_word", 100},
                        {"vocab", vocab}}}};
  return dump_json(json, 1) + "\n";
}

std::string trained_bpe_json(const std::vector<Merge>& merges) {
  std::vector<std::string> tokens;
  tokens.reserve(256 + merges.size());
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  JsonTree vocab = JsonTree::object(), pairs = JsonTree::array();
  for (const Merge& merge : merges) {
    const std::string &left = tokens[static_cast<size_t>(merge.left)],
                      &right = tokens[static_cast<size_t>(merge.right)];
    pairs.push_back(byte_level_text(left) + " " + byte_level_text(right));
    if (static_cast<size_t>(merge.joined) == tokens.size()) tokens.push_back(left + right);
  }
  for (size_t id = 0; id < tokens.size(); ++id) vocab[byte_level_text(tokens[id])] = id;
  const auto end = static_cast<int32_t>(tokens.size());
  vocab["<|endoftext|>"] = end;
  JsonTree added = JsonTree::array({added_token(end, "<|endoftext|>")});
  return dump_json(byte_level_bpe(std::move(vocab), std::move(pairs), std::move(added)), 1) + "\n";
}

std::string byte_json() {
  JsonTree vocab = JsonTree::object();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab[byte_level_text({&c, 1})] = byte;
  }
  return dump_json(byte_level_bpe(std::move(vocab), JsonTree::array(), JsonTree::array()), 1) + "\n";
}

std::unique_ptr<Tokenizer> hf_tokenizer(std::string text, const std::string& origin) {
  const JsonTree json = parse_json_tree(text, origin);
  require(json.is_object() && json.contains("model") && json["model"].is_object(),
          "{}: not a tokenizer.json: it has no model", origin);
  const JsonTree& model = json["model"];
  if (text == byte_json()) return byte_tokenizer();
  try {
    const std::string type = model.value("type", model.contains("merges") ? "BPE" : "");
    if (type == "BPE") return bpe_tokenizer(std::move(text), json, origin);
    if (type == "WordPiece") return wordpiece_tokenizer(std::move(text), json, origin);
    fail("{}: a model of type '{}' is not supported (BPE, WordPiece)", origin, type);
  } catch (const JsonTree::exception& e) {
    fail("{}: a member has the wrong type ({})", origin, json_problem(e.what()));
  }
}

}  // namespace longshot
