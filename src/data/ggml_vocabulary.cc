#include "data/ggml_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "data/hf_tokenizer.h"
#include "data/utf8.h"

namespace longshot {
namespace {

constexpr size_t kLongestPiece = 512;    // bytes; a piece is looked at in every two parts
constexpr size_t kMergesPerToken = 32;   // bytes of merges for each byte of tokens; Llama 2's have 5
constexpr size_t kFreeMerges = 1 << 20;  // and so many more
constexpr const char* kSpace = "\u2581";

JsonTree byte_level(bool regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", regex}};
}

JsonTree split_at(const char* pattern) {
  const JsonTree split{
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

// A way to cut text that both know, by llama.cpp's names; the first is the one to write.
struct Cut {
  std::vector<std::string_view> names;
  JsonTree pre_tokenizer;
  bool ignore_merges = false;
};

std::vector<Cut> cuts() {
  return {
      {{"gpt-2", "mpt", "olmo", "phi-2"}, byte_level(true)},
      {{"bloom"}, split_at(" ?[^(\\s|[.,!?…。，、।۔،])]+")},
      {{"llama-bpe", "llama3", "llama-v3"},
       split_at("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
       true}};
}

// What a pre-tokenizer does, without what it says of offsets.
JsonTree without_offsets(JsonTree pre) {
  if (!pre.is_object()) return pre;
  pre.erase("trim_offsets");
  if (pre.contains("pretokenizers")) {
    for (JsonTree& part : pre["pretokenizers"]) part.erase("trim_offsets");
  }
  return pre;
}

std::string cut_name(const JsonTree& json) {
  const bool ignore_merges = json["model"].value("ignore_merges", false);
  for (const Cut& cut : cuts()) {
    if (without_offsets(json.value("pre_tokenizer", JsonTree())) == without_offsets(cut.pre_tokenizer) &&
        ignore_merges == cut.ignore_merges)
      return std::string(cut.names[0]);
  }
  fail_usage("GGUF: the tokenizer cuts text in a way that llama.cpp has no name for (GPT-2's, BLOOM's, Llama 3's)");
}

GgmlVocabulary of_bytes() {
  GgmlVocabulary out{
      .model = GgmlVocabulary::Model::kGpt2, .pre = "gpt-2", .tokens = {}, .types = std::vector<int32_t>(256, 1)};
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    out.tokens.push_back(byte_level_text({&c, 1}));
  }
  out.start = out.end = '\n';
  return out;
}

// The two parts of a merge, however it is spelled.
std::pair<std::string, std::string> parts_of(const JsonTree& merge) {
  if (merge.is_array()) return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const auto text = merge.get<std::string>();
  const size_t space = text.find(' ');
  return {text.substr(0, space), text.substr(space + 1)};
}

// For each piece, in the order of their first merges, all ways to make it.
std::vector<std::pair<std::string, std::set<std::string>>> ways(const JsonTree& merges) {
  std::vector<std::pair<std::string, std::set<std::string>>> all;
  std::unordered_map<std::string, size_t> place;
  for (const JsonTree& merge : merges) {
    const auto [left, right] = parts_of(merge);
    const auto [at, fresh] = place.emplace(left + right, all.size());
    if (fresh) all.push_back({left + right, {}});
    all[at->second].second.insert(left);
  }
  return all;
}

void set_ends(const Tokenizer& tokenizer, GgmlVocabulary& out) {
  std::vector<int32_t> end;
  tokenizer.end_document('\n', end);
  out.start = tokenizer.start_id();
  out.end = end.at(0);
  out.add_start = out.start != out.end;
}

// Characters with bytes for the unknown, as Llama 2 has them: a piece's score is the rank of its first merge. None where
// llama.cpp, which joins whatever gives a piece, would join other parts, or normalise otherwise.
std::optional<GgmlVocabulary> of_pieces(const Tokenizer& tokenizer, const JsonTree& json) {
  const JsonTree& model = json["model"];
  if (!model.value("byte_fallback", false) || !json.value("pre_tokenizer", JsonTree()).is_null()) return {};
  const Vocabulary vocabulary = read_vocabulary(json, tokenizer.file_name());
  GgmlVocabulary out{
      .model = GgmlVocabulary::Model::kLlama, .pre = "default", .tokens = vocabulary.tokens, .types = {}};
  out.types.assign(out.tokens.size(), GgmlVocabulary::kNormal);
  for (const AddedToken& token : vocabulary.added)
    out.types[static_cast<size_t>(token.id)] = token.special ? GgmlVocabulary::kControl : GgmlVocabulary::kUser;
  std::unordered_map<std::string_view, float> scores;
  const auto merges = ways(model["merges"]);
  for (const auto& [piece, parts] : merges) scores.emplace(piece, -static_cast<float>(scores.size()));
  std::set<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.insert(fallback_text(static_cast<unsigned char>(byte)));
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    const std::string& text = out.tokens[id];
    if (bytes.contains(text)) out.types[id] = GgmlVocabulary::kByte;
    if (model.value("unk_token", JsonTree()) == JsonTree(text)) {
      out.types[id] = GgmlVocabulary::kUnknown;
      out.unknown = static_cast<int32_t>(id);
    }
    const auto score = scores.find(text);
    out.scores.push_back(score == scores.end() ? 0 : score->second);
  }
  set_ends(tokenizer, out);
  out.add_space = json["normalizer"].value("normalizers", JsonTree::array()).size() == 2;
  const std::string& name = tokenizer.file_name();
  const JsonTree back = parse_json_tree(ggml_tokenizer_json(out, name), name);
  const bool same = back["normalizer"] == json["normalizer"] && ways(back["model"]["merges"]) == merges;
  return same ? std::optional(std::move(out)) : std::nullopt;
}

GgmlVocabulary of_bpe(const Tokenizer& tokenizer) {
  const JsonTree json = parse_json_tree(tokenizer.file(), tokenizer.file_name());
  if (json.contains("normalizer") && json["normalizer"].is_object()) {
    if (auto pieces = of_pieces(tokenizer, json)) return *std::move(pieces);
    fail_usage("GGUF: the tokenizer normalises text ({}), which llama.cpp does not do in this way",
               json["normalizer"].value("type", ""));
  }
  GgmlVocabulary out{.model = GgmlVocabulary::Model::kGpt2, .pre = cut_name(json), .tokens = {}, .types = {}};
  Vocabulary vocabulary = read_vocabulary(json, tokenizer.file_name());
  out.types.assign(vocabulary.tokens.size(), GgmlVocabulary::kNormal);
  for (const AddedToken& token : vocabulary.added)
    out.types[static_cast<size_t>(token.id)] = token.special ? GgmlVocabulary::kControl : GgmlVocabulary::kUser;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.tokens[id].empty()) continue;
    vocabulary.tokens[id] = fmt::format("[PAD{}]", id);
    out.types[id] = GgmlVocabulary::kUnused;
  }
  out.tokens = std::move(vocabulary.tokens);
  for (const JsonTree& merge : json["model"]["merges"]) {
    const auto [left, right] = parts_of(merge);
    out.merges.push_back(left + " " + right);
  }
  set_ends(tokenizer, out);
  return out;
}

JsonTree added_tokens(const GgmlVocabulary& v) {
  JsonTree added = JsonTree::array();
  for (size_t id = 0; id < v.types.size(); ++id) {
    const int32_t type = v.types[id];
    if (type != GgmlVocabulary::kControl && type != GgmlVocabulary::kUser && type != GgmlVocabulary::kUnknown) continue;
    added.push_back(added_token(static_cast<int32_t>(id), v.tokens[id], type != GgmlVocabulary::kUser));
  }
  return added;
}

// Every two pieces whose joined text is one, of whatever type, the best score first.
JsonTree merges_of_scores(const GgmlVocabulary& v, const std::unordered_map<std::string_view, size_t>& ids,
                          const std::string& origin) {
  struct Joined {
    size_t id, left;  // bytes of the left part
  };
  std::vector<Joined> all;
  size_t bytes = 0, most = kFreeMerges;
  for (const std::string& token : v.tokens) most += kMergesPerToken * token.size();
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const std::string_view text = v.tokens[id];
    for (size_t left = 1; left < text.size(); ++left) {
      if (!ids.contains(text.substr(0, left)) || !ids.contains(text.substr(left))) continue;
      all.push_back({id, left});
      bytes += text.size();
    }
    require(bytes <= most,
            "{}: the tokens can be made of each other in so many ways that their merges have more than {} bytes",
            origin, most);
  }
  std::ranges::stable_sort(all, [&](const Joined& a, const Joined& b) { return v.scores[a.id] > v.scores[b.id]; });
  JsonTree merges = JsonTree::array();
  for (const auto [id, left] : all)
    merges.push_back(JsonTree::array({v.tokens[id].substr(0, left), v.tokens[id].substr(left)}));
  return merges;
}

void check(const GgmlVocabulary& v, const std::string& origin) {
  const auto count = static_cast<int64_t>(v.tokens.size());
  require(count > 0, "{}: there are no tokens (tokenizer.ggml.tokens)", origin);
  require(v.types.empty() || v.types.size() == v.tokens.size(), "{}: {} tokens, but {} types", origin, count,
          v.types.size());
  require(v.model == GgmlVocabulary::Model::kGpt2 || v.scores.size() == v.tokens.size(), "{}: {} tokens, but {} scores",
          origin, count, v.scores.size());
  for (const float score : v.scores) require(score == score, "{}: a token's score is not a number", origin);
  for (const auto& id : {v.start, v.end, v.unknown})
    require(!id || (*id >= 0 && *id < count), "{}: a special token is {}, of {}", origin, id.value_or(0), count);
  for (const std::string& token : v.tokens) {
    require(v.model == GgmlVocabulary::Model::kGpt2 || token.size() <= kLongestPiece,
            "{}: a token has {} bytes; at most {} are taken", origin, token.size(), kLongestPiece);
    require(find_invalid_utf8(token).bytes == 0, "{}: the token '{}' is not UTF-8", origin, printable(token));
  }
}

void set_start(JsonTree& json, const GgmlVocabulary& v) {
  if (!v.add_start || !v.start) return;
  const std::string& token = v.tokens[static_cast<size_t>(*v.start)];
  const JsonTree special{{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  const auto sequence = [](const char* id, int type) {
    return JsonTree{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", JsonTree::array({special, sequence("A", 0)})},
                            {"pair", JsonTree::array({special, sequence("A", 0), sequence("B", 1)})},
                            {"special_tokens", {{token, {{"id", token}, {"ids", {*v.start}}, {"tokens", {token}}}}}}};
}

void make_characters(JsonTree& json, const GgmlVocabulary& v) {
  JsonTree normalizers = JsonTree::array();
  if (v.add_space) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  json["pre_tokenizer"] = nullptr;
  JsonTree decoders = JsonTree::array({{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                                       {{"type", "ByteFallback"}},
                                       {{"type", "Fuse"}}});
  if (v.add_space) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  json["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  json["model"]["byte_fallback"] = true;
  json["model"]["fuse_unk"] = true;
  if (v.unknown) json["model"]["unk_token"] = v.tokens[static_cast<size_t>(*v.unknown)];
}

}  // namespace

GgmlVocabulary ggml_vocabulary(const Tokenizer& tokenizer) {
  if (tokenizer.name() == "byte") return of_bytes();
  if (tokenizer.name() == "bpe") return of_bpe(tokenizer);
  fail_usage("GGUF: llama.cpp has no tokenizer that gives the ids of '{}'. Use --tokenizer byte or bpe.",
             tokenizer.name());
}

std::string ggml_tokenizer_json(const GgmlVocabulary& v, const std::string& origin) {
  check(v, origin);
  JsonTree vocab = JsonTree::object();
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    require(ids.emplace(v.tokens[id], id).second, "{}: the token '{}' has two ids", origin, printable(v.tokens[id]));
    vocab[v.tokens[id]] = id;
  }
  if (v.model == GgmlVocabulary::Model::kLlama) {
    JsonTree json = byte_level_bpe(std::move(vocab), merges_of_scores(v, ids, origin), added_tokens(v));
    make_characters(json, v);
    set_start(json, v);
    return dump_json(json, 1) + "\n";
  }
  JsonTree merges = JsonTree::array();
  for (const std::string& merge : v.merges) {
    require(find_invalid_utf8(merge).bytes == 0, "{}: the merge '{}' is not UTF-8", origin, printable(merge));
    merges.push_back(merge);
  }
  JsonTree json = byte_level_bpe(std::move(vocab), std::move(merges), added_tokens(v));
  for (const Cut& cut : cuts()) {
    if (std::ranges::find(cut.names, v.pre) == cut.names.end()) continue;
    json["pre_tokenizer"] = cut.pre_tokenizer;
    if (cut.ignore_merges) json["model"]["ignore_merges"] = true;
    set_start(json, v);
    return dump_json(json, 1) + "\n";
  }
  fail("{}: text cut as '{}' (tokenizer.ggml.pre) is not supported (gpt-2, mpt, olmo, phi-2, bloom, llama-bpe)", origin,
       printable(v.pre));
}

}  // namespace longshot
