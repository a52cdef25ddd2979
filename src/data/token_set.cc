#include "data/token_set.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/records.h"
#include "data/data_bin.h"
#include "data/token_set_dir.h"

namespace longshot {
namespace {

// Rows of embeddings behind the last token, as far as no tokenizer tells.
constexpr int kMostPadding = 1024;

std::vector<fs::path> files_ending(const fs::path& dir, std::string_view suffix) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    if (entry.path().extension() == suffix) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

// What meta.json says of the files is so.
void check_meta(const fs::path& path, const std::map<std::string, TokenFile>& files) {
  if (!fs::exists(path)) return;
  const Json meta = read_json(path);
  if (!meta.is_object() || !meta.contains("splits")) return;
  const Json& splits = meta["splits"];
  require(splits.is_object(), "{}: its splits are no object", path.string());
  for (const auto& [name, file] : files) {
    if (!splits.contains(name)) continue;
    const Json& split = splits[name];
    const auto same = [&, &file = file, &name = name](const char* key, const Json& value) {
      require(split[key] == value, "{}: {} of {} is {}, but {} says {}. Were files of two sets mixed?", path.string(),
              key, name, split[key].dump(), file.path().filename().string(), value.dump());
    };
    const TokenCounts& c = file.counts();
    require(split.is_object() && split.contains("tokens") && split.contains("documents") && split.contains("bytes") &&
                split.contains("words"),
            "{}: lacks the counts of {}", path.string(), name);
    same("tokens", c.tokens);
    same("documents", c.documents);
    same("bytes", c.bytes);
    same("words", c.words);
    if (split.contains("data_hash")) same("data_hash", fmt::format("{:016x}", file.data_hash()));
  }
}

}  // namespace

bool is_token_set(const fs::path& dir) {
  return fs::is_directory(dir) && (!files_ending(dir, TokenSetDir::kEnding).empty() || is_data_bin(dir));
}

TokenSet::TokenSet(const fs::path& dir) : path_(dir) {
  require(fs::is_directory(dir), "{}: {}. `longshot prepare` makes a token set.", dir.string(),
          fs::exists(dir) ? "not a directory" : "no such directory");
  if (is_data_bin(dir)) {
    tokenizer_ = load_tokenizer(dir / "dict.txt");
    for (const fs::path& file : files_ending(dir, ".idx")) {
      splits_.emplace(file.stem().string(), open_data_bin(dir / file.stem(), *tokenizer_));
    }
    return;
  }
  for (const fs::path& file : files_ending(dir, TokenSetDir::kEnding))
    splits_.emplace(file.stem().string(), TokenFile(file));
  require(!splits_.empty(), "{}: no *.tokens in it. `longshot prepare --out DIR` makes a token set.", dir.string());
  tokenizer_ = load_tokenizer(dir);
  for (const auto& [name, file] : splits_) {
    require(file.tokenizer_hash() == tokenizer_->hash(),
            "{}: made with tokenizer {:016x}, but {} beside it is {:016x}. Were files of two sets mixed?",
            file.path().string(), file.tokenizer_hash(), tokenizer_->file_name(), tokenizer_->hash());
    require(file.vocab_size() == tokenizer_->vocab_size(),
            "{}: its ids are of a vocabulary of {}, but {} beside it has {} entries. Is the file damaged?",
            file.path().string(), file.vocab_size(), tokenizer_->file_name(), tokenizer_->vocab_size());
  }
  check_meta(TokenSetDir(dir).meta(), splits_);
}

void require_same_tokenizer(const TokenSet& set, const ModelVocabulary& model) {
  const Tokenizer& tokenizer = set.tokenizer();
  require(model.tokenizer_hash == 0 || model.tokenizer_hash == tokenizer.hash(),
          "{}: the model was trained with tokenizer {:016x}, the token set {} was made with {:016x}. Prepare the text "
          "with the model's tokenizer{}.",
          model.name, model.tokenizer_hash, set.path().string(), tokenizer.hash(),
          model.tokenizer_file.empty() ? "" : ": --tokenizer " + model.tokenizer_file.string());
  // A model may have rows behind the last token, to make its vocabulary a round number.
  const int most = model.tokenizer_hash == 0 ? tokenizer.vocab_size() + kMostPadding : model.size;
  require(model.size >= tokenizer.vocab_size() && model.size <= most,
          "{}: the model knows {} tokens, the tokenizer of {} has {}. Prepare the text with the model's tokenizer.",
          model.name, model.size, set.path().string(), tokenizer.vocab_size());
}

std::vector<std::string> TokenSet::names() const {
  std::vector<std::string> names;
  for (const char* first : {"train", "valid", "test"}) {
    if (has(first)) names.emplace_back(first);
  }
  for (const auto& [name, file] : splits_) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

const TokenFile& TokenSet::split(const std::string& name) const {
  const auto found = splits_.find(name);
  require(found != splits_.end(), "{}: there is no split '{}'; there are: {}", path_.string(), name,
          fmt::join(names(), ", "));
  return found->second;
}

Facts facts_of(const TokenSet& set) {
  Facts facts{{"the splits of --data", fmt::format("{}", fmt::join(set.names(), ", "))}};
  for (const std::string& name : set.names())
    facts.emplace_back(fmt::format("the hash of the text '{}' in --data", name),
                       fmt::format("{:016x}", set.split(name).data_hash()));
  facts.emplace_back("the tokenizer's hash", fmt::format("{:016x}", set.tokenizer().hash()));
  return facts;
}

}  // namespace longshot
