#include "cli/info_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/printable.h"
#include "base/records.h"
#include "cli/command.h"
#include "data/data_bin.h"
#include "data/token_set.h"
#include "data/token_set_dir.h"
#include "data/utf8.h"

namespace longshot {
namespace {

constexpr int64_t kCountedTokens = 20'000'000;  // of a split, for the most frequent tokens
constexpr size_t kFrequent = 12;
constexpr int64_t kSample = 60;
constexpr size_t kLongestSample = 4096;  // bytes

struct Frequent {
  int32_t id;
  uint64_t count;
};

// Memory is by the different ids there are, not by what the header says of the vocabulary.
std::vector<Frequent> most_frequent(const TokenFile& file) {
  std::unordered_map<int32_t, uint64_t> counts;
  std::vector<int32_t> block(1 << 16);
  const int64_t end = std::min(file.size(), kCountedTokens);
  for (int64_t at = 0; at < end; at += static_cast<int64_t>(block.size())) {
    const auto ids =
        std::span(block).first(static_cast<size_t>(std::min<int64_t>(end - at, static_cast<int64_t>(block.size()))));
    file.read(at, ids);
    for (const int32_t id : ids) ++counts[id];
  }
  std::vector<Frequent> order;
  order.reserve(counts.size());
  for (const auto& [id, count] : counts) order.push_back({id, count});
  const size_t shown = std::min(kFrequent, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<ptrdiff_t>(shown), order.end(),
      [](const Frequent& a, const Frequent& b) { return a.count != b.count ? a.count > b.count : a.id < b.id; });
  order.resize(shown);
  return order;
}

// As the header has it; compared with the data where they are read anyway.
std::string data_hash(const TokenFile& file) {
  const uint64_t hash = file.data_hash();
  if (file.size() <= kCountedTokens) {
    const uint64_t computed = file.computed_hash();
    require(computed == hash, "{}: its header says the data hash is {:016x}, but the data give {:016x}. It is damaged.",
            file.path().string(), hash, computed);
  }
  return fmt::format("{:016x}", hash);
}

// The first tokens, fewer where they are long.
std::string sample(const TokenFile& file, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids(static_cast<size_t>(std::min(file.size(), kSample)));
  file.read(0, ids);
  std::string text;
  for (size_t n = 1; n <= ids.size() && text.size() <= kLongestSample; ++n)
    text = tokenizer.decode(std::span(ids).first(n));
  return text.size() <= kLongestSample ? printable(text) : shown(text);
}

// A number that is 0 where it is not known.
Json known(uint64_t value) { return value > 0 ? Json(value) : Json(); }

Json split_json(const TokenFile& file, const Tokenizer* tokenizer) {
  const TokenCounts& c = file.counts();
  Json json{{"tokens", c.tokens}, {"documents", c.documents}, {"words", known(c.words)}, {"bytes", known(c.bytes)}};
  json["tokens_per_word"] = c.words > 0 ? Json(static_cast<double>(c.tokens) / static_cast<double>(c.words)) : Json();
  json["bytes_per_token"] =
      c.bytes > 0 && c.tokens > 0 ? Json(static_cast<double>(c.bytes) / static_cast<double>(c.tokens)) : Json();
  json["id_bytes"] = file.width();
  json["vocab_size"] = file.vocab_size();
  json["tokenizer_hash"] = fmt::format("{:016x}", file.tokenizer_hash());
  json["data_hash"] = data_hash(file);
  Json frequent = Json::array();
  for (const auto& [id, count] : most_frequent(file)) {
    Json entry{{"id", id}, {"count", count}};
    if (tokenizer) entry["token"] = shown(tokenizer->token(id));
    frequent.push_back(entry);
  }
  json["frequent"] = frequent;
  if (tokenizer) json["sample"] = sample(file, *tokenizer);
  return json;
}

void print_split(const std::string& name, const Json& split) {
  const auto number = [&](const char* key) { return split[key].is_null() ? std::string("?") : split[key].dump(); };
  fmt::print("{}: {} tokens, {} documents, {} words, {} bytes", printable(name), number("tokens"), number("documents"),
             number("words"), number("bytes"));
  if (!split["tokens_per_word"].is_null())
    fmt::print(", {:.3f} tokens per word", split["tokens_per_word"].get<double>());
  fmt::print("\n  ids of {} bytes, data hash {}\n  frequent:", number("id_bytes"),
             split["data_hash"].get<std::string>());
  for (const Json& token : split["frequent"]) {
    fmt::print(" {} ({})",
               token.contains("token") ? fmt::format("'{}'", token["token"].get<std::string>()) : token["id"].dump(),
               token["count"].dump());
  }
  fmt::print("\n");
  if (split.contains("sample")) fmt::print("  begins: {}\n", split["sample"].get<std::string>());
}

Json tokenizer_json(const Tokenizer& tokenizer) {
  return {{"name", tokenizer.name()},
          {"vocab_size", tokenizer.vocab_size()},
          {"start", shown(tokenizer.token(tokenizer.start_id()))},
          {"file", tokenizer.file_name()},
          {"hash", fmt::format("{:016x}", tokenizer.hash())}};
}

void print_tokenizer(const Tokenizer& tokenizer) {
  fmt::print("tokenizer: {}, {} entries, starts with '{}', hash {:016x}\n", tokenizer.name(), tokenizer.vocab_size(),
             shown(tokenizer.token(tokenizer.start_id())), tokenizer.hash());
}

bool is_tokenizer_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("tokenizer.") || name.ends_with("dict.txt") || name.ends_with("vocab.txt") ||
         name.ends_with("vocab.json") || path.extension() == ".model";
}

}  // namespace

bool print_token_info(const fs::path& path, bool json) {
  if (is_token_set(path)) {
    const TokenSet set(path);
    Json splits;
    for (const std::string& name : set.names()) splits[name] = split_json(set.split(name), &set.tokenizer());
    if (json) {
      show_json(Json{{"tokenizer", tokenizer_json(set.tokenizer())}, {"splits", splits}}, 2);
      return true;
    }
    fmt::print("{}: {}\n", printable(path.string()), is_data_bin(path) ? "fairseq data-bin" : "token set");
    print_tokenizer(set.tokenizer());
    for (const auto& [name, split] : splits.items()) print_split(name, split);
    return true;
  }
  if (fs::is_regular_file(path) && path.extension() == TokenSetDir::kEnding) {
    const Json split = split_json(TokenFile(path), nullptr);
    json ? show_json(split, 2) : print_split(path.string(), split);
    return true;
  }
  if (fs::is_regular_file(path) && is_tokenizer_file(path)) {
    const auto tokenizer = load_tokenizer(path);
    json ? show_json(tokenizer_json(*tokenizer), 2) : print_tokenizer(*tokenizer);
    return true;
  }
  return false;
}

}  // namespace longshot
