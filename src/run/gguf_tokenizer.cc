#include "run/gguf_tokenizer.h"

#include <cmath>
#include <limits>
#include <unordered_set>

#include "base/error.h"
#include "base/printable.h"
#include "data/tokenizers.h"

namespace longshot {
namespace {

constexpr const char *kModel = "tokenizer.ggml.model", *kPre = "tokenizer.ggml.pre", *kTokens = "tokenizer.ggml.tokens",
                     *kTypes = "tokenizer.ggml.token_type", *kScores = "tokenizer.ggml.scores",
                     *kMerges = "tokenizer.ggml.merges", *kStart = "tokenizer.ggml.bos_token_id",
                     *kEnd = "tokenizer.ggml.eos_token_id", *kUnknown = "tokenizer.ggml.unknown_token_id",
                     *kAddStart = "tokenizer.ggml.add_bos_token", *kAddEnd = "tokenizer.ggml.add_eos_token",
                     *kAddSpace = "tokenizer.ggml.add_space_prefix", *kTrim = "tokenizer.ggml.remove_extra_whitespaces";

std::optional<int32_t> id_at(const Gguf& file, const char* key) {
  const auto id = file.integer(key);
  if (!id) return {};
  require(*id >= 0 && *id <= INT32_MAX, "{}: \"{}\" is {}, which is no token", file.path().string(), key, *id);
  return static_cast<int32_t>(*id);
}

std::vector<std::string> texts_at(const Gguf& file, const char* key) {
  const auto texts = file.texts(key).value_or(std::vector<std::string_view>{});
  return {texts.begin(), texts.end()};
}

template <class T>
std::vector<T> numbers_at(const Gguf& file, const char* key) {
  std::vector<T> out;
  for (const double number : file.numbers(key).value_or(std::vector<double>{})) {
    require(number >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
                number <= static_cast<double>(std::numeric_limits<T>::max()),
            "{}: \"{}\" holds {}", file.path().string(), key, number);
    require(std::is_floating_point_v<T> || number == std::trunc(number),
            "{}: \"{}\" holds {}, which is no whole number", file.path().string(), key, number);
    out.push_back(static_cast<T>(number));
  }
  return out;
}

std::string filler(size_t id) { return fmt::format("[PAD{}]", id); }

// Entries behind the last that text can give are rows of the embeddings, not of the tokenizer.
void drop_fillers(GgmlVocabulary& v) {
  while (v.types.size() == v.tokens.size() && !v.tokens.empty() && v.types.back() == GgmlVocabulary::kUnused &&
         v.tokens.back() == filler(v.tokens.size() - 1)) {
    v.tokens.pop_back();
    v.types.pop_back();
    if (v.scores.size() > v.tokens.size()) v.scores.pop_back();
  }
}

}  // namespace

std::optional<GgmlVocabulary> gguf_vocabulary(const Gguf& file) {
  const std::string model = file.text(kModel).value_or("none"), name = file.path().string();
  if (model == "none" || model == "no_vocab") return {};
  const std::optional<GgmlVocabulary::Model> known = value_of(GgmlVocabulary::kModels, model);
  require(known.has_value(), "{}: the tokenizer '{}' ({}) is not supported (gpt2, llama)", name, printable(model),
          kModel);
  GgmlVocabulary v{.model = *known, .pre = "", .tokens = {}, .types = {}};
  v.pre = file.text(kPre).value_or("");
  v.tokens = texts_at(file, kTokens);
  v.types = numbers_at<int32_t>(file, kTypes);
  v.scores = numbers_at<float>(file, kScores);
  v.merges = texts_at(file, kMerges);
  v.start = id_at(file, kStart), v.end = id_at(file, kEnd), v.unknown = id_at(file, kUnknown);
  // What llama.cpp takes where there is no such key.
  const bool characters = v.model == GgmlVocabulary::Model::kLlama;
  if (characters) v.start = v.start.value_or(1), v.end = v.end.value_or(2), v.unknown = v.unknown.value_or(0);
  v.add_start = file.boolean(kAddStart).value_or(characters || v.pre.starts_with("llama"));
  v.add_space = file.boolean(kAddSpace).value_or(characters);
  require(!file.boolean(kAddEnd).value_or(false), "{}: \"{}\" is true: nothing is put behind every text here", name,
          kAddEnd);
  require(!file.boolean(kTrim).value_or(false), "{}: \"{}\" is true: spaces are kept here", name, kTrim);
  drop_fillers(v);
  return v;
}

std::unique_ptr<Tokenizer> gguf_tokenizer(const Gguf& file) {
  const std::optional<GgmlVocabulary> v = gguf_vocabulary(file);
  if (!v) return nullptr;
  const std::string name = file.path().string();
  return hf_tokenizer(ggml_tokenizer_json(*v, name), name);
}

void add_tokenizer(GgufKeys& keys, const Tokenizer* tokenizer, int64_t rows) {
  if (!tokenizer) {
    keys.add(kModel, "none");
    return;
  }
  GgmlVocabulary v = ggml_vocabulary(*tokenizer);
  const auto count = static_cast<size_t>(rows);
  require(v.tokens.size() <= count, "the tokenizer has {} entries, the model embeddings for {}", v.tokens.size(), rows);
  const std::unordered_set<std::string> taken(v.tokens.begin(), v.tokens.end());
  v.types.resize(count, GgmlVocabulary::kUnused);
  while (v.tokens.size() < count) {
    v.tokens.push_back(filler(v.tokens.size()));
    require(!taken.contains(v.tokens.back()), "the tokenizer's '{}' has the name of an entry without text",
            v.tokens.back());
  }
  keys.add(kModel, name_of(GgmlVocabulary::kModels, v.model));
  keys.add(kPre, v.pre);
  keys.add(kTokens, std::span<const std::string>(v.tokens));
  keys.add(kTypes, std::span<const int32_t>(v.types));
  if (v.model == GgmlVocabulary::Model::kLlama) {
    v.scores.resize(count);
    keys.add(kScores, std::span<const float>(v.scores));
  } else {
    keys.add(kMerges, std::span<const std::string>(v.merges));
  }
  for (const auto& [key, id] : {std::pair(kStart, v.start), std::pair(kEnd, v.end), std::pair(kUnknown, v.unknown)})
    if (id) keys.add(key, static_cast<uint32_t>(*id));
  keys.add(kAddStart, v.add_start);
  keys.add(kAddEnd, false);
  keys.add(kAddSpace, v.add_space && v.model == GgmlVocabulary::Model::kLlama);
}

}  // namespace longshot
