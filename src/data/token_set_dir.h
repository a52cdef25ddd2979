// The files of a token set, and of the work on one. The only place that spells these names.
//
//   SET/meta.json          what it was made of, and the counts of its splits
//   SET/NAME.tokens        ids of a split; NAME.tokens.documents.tmp while it is written
//   SET/tokenizer.*        what they mean: one of the files below
//   SET.partial/           the same, unfinished, with job.json (how far it is) and pipe-N (text that came through a pipe)
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace longshot {

// Of tokenizers, by kind.
constexpr const char *kByteTokenizerFile = "tokenizer.byte.json", *kWordTokenizerFile = "tokenizer.dict.txt",
                     *kHfTokenizerFile = "tokenizer.json", *kSentencePieceFile = "tokenizer.model";
constexpr const char* kTokenizerFiles[] = {kByteTokenizerFile, kWordTokenizerFile, kHfTokenizerFile,
                                           kSentencePieceFile};

class TokenSetDir {
 public:
  static constexpr const char* kEnding = ".tokens";

  explicit TokenSetDir(fs::path dir) : dir_(std::move(dir)) {}
  const fs::path& path() const { return dir_; }
  fs::path meta() const { return dir_ / kMeta; }
  fs::path job() const { return dir_ / kJob; }
  fs::path split(const std::string& name) const { return dir_ / (name + kEnding); }
  static fs::path documents_of(fs::path split) { return (split += kDocuments) += kUnwritten; }
  fs::path pipe(size_t number) const { return dir_ / (kPipe + std::to_string(number)); }

  // What may stand in SET or SET.partial with these splits, pipes apart; each also while it is written.
  static std::set<std::string> names(const std::set<std::string>& splits) {
    std::set<std::string> names{kJob, kMeta};
    names.insert(std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
    for (const std::string& split : splits) names.insert({split + kEnding, split + kEnding + kDocuments});
    for (const std::string& name : std::vector(names.begin(), names.end())) names.insert(name + kUnwritten);
    return names;
  }
  static bool is_pipe_name(std::string_view name) {
    if (!name.starts_with(kPipe)) return false;
    name.remove_prefix(std::string_view(kPipe).size());
    return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
  }
  // Of job.json before it is whole: what a directory holds first.
  static bool is_first_name(std::string_view name) { return name == std::string(kJob) + kUnwritten; }

 private:
  static constexpr const char *kMeta = "meta.json", *kJob = "job.json", *kPipe = "pipe-", *kDocuments = ".documents",
                              *kUnwritten = ".tmp";
  fs::path dir_;
};

}  // namespace longshot
