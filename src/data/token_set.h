// A token set: the splits of a corpus and the tokenizer that made them. Either `longshot prepare`'s directory
// ({train,valid,test}.tokens, tokenizer.*, meta.json) or a fairseq data-bin directory (dict.txt, *.idx +
// *.bin).
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "data/tokenizer.h"
#include "dist/communicator.h"

namespace longshot {

class TokenSet {
 public:
  explicit TokenSet(const fs::path& dir);

  const fs::path& path() const { return path_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::vector<std::string> names() const;  // of the splits, "train" first
  bool has(const std::string& name) const { return splits_.contains(name); }
  const TokenFile& split(const std::string& name) const;  // absent: throws and names those there are

 private:
  fs::path path_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::map<std::string, TokenFile> splits_;
};

// What ranks that work on it must have alike: which splits there are, the text of each, the tokenizer.
Facts facts_of(const TokenSet& set);

// The vocabulary a model was made for.
struct ModelVocabulary {
  std::string name;             // of the model, for messages
  int size = 0;                 // entries of its embeddings
  uint64_t tokenizer_hash = 0;  // 0: no tokenizer travelled with it
  fs::path tokenizer_file;      // to be named as the one to prepare with; "" where there is none
};

// Throws unless every id of the set means the same to the model.
void require_same_tokenizer(const TokenSet& set, const ModelVocabulary& model);

// Whether TokenSet can be made of it, judged by its file names.
bool is_token_set(const fs::path& dir);

}  // namespace longshot
