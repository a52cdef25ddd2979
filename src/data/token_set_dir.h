// The files of a token set, and of the work on one. The only place that spells these names.
//
//   SET/meta.json          what it was made of, and the counts of its splits
//   SET/NAME.tokens        ids of a split; NAME.tokens.documents.tmp while it is written
//   SET/tokenizer.*        what they mean: one of the files below
//   SET.partial/           the same, unfinished, with job.json (how far it is) and pipe-N (text that came through a pipe)
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

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

  // Whether a file of this name in SET or SET.partial may be one of the above.
  static bool is_name(std::string_view name) {
    if (name.find(kUnwritten) != std::string_view::npos) name = name.substr(0, name.find(kUnwritten));
    if (name.ends_with(kDocuments)) name.remove_suffix(std::string_view(kDocuments).size());
    return name == kJob || name == kMeta || std::ranges::find(kTokenizerFiles, name) != std::end(kTokenizerFiles) ||
           name.ends_with(kEnding) || name.starts_with(kPipe);
  }
  // Of job.json before it is whole: what a directory holds first.
  static bool is_first_name(std::string_view name) { return name.starts_with(std::string(kJob) + kUnwritten); }

 private:
  static constexpr const char *kMeta = "meta.json", *kJob = "job.json", *kPipe = "pipe-", *kDocuments = ".documents",
                              *kUnwritten = ".tmp";
  fs::path dir_;
};

}  // namespace longshot
