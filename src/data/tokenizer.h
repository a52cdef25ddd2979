// Tokenizers turn text into ids and back. A tokenizer is its file: it is built from that file's bytes, saved
// as them, and known by their hash, which every token file and checkpoint carries.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/watch.h"

namespace longshot {

// Encodes for one thread; keeps that thread's scratch memory and cache.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the ids of `text`, nothing before and nothing behind.
  virtual void append(std::string_view text, std::vector<int32_t>& ids) = 0;
  // From now on append() asks now and then whether to stop, and throws Stopped where the answer is yes.
  void set_watch(Watch watch) { watch_ = std::move(watch); }

 protected:
  const Watch& watch() const { return watch_; }
  // So many bytes of the text are done, or a part of the work on them is.
  void passed(size_t bytes) {
    passed_ += bytes;
    if (passed_ < kBetweenQuestions) return;
    passed_ = 0;
    if (watch_.should_stop()) throw Stopped();
  }

 private:
  static constexpr size_t kBetweenQuestions = 1 << 16;  // bytes
  Watch watch_;
  size_t passed_ = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view name() const = 0;  // "byte", "word", "bpe", "wordpiece", "sentencepiece"
  virtual int vocab_size() const = 0;
  // Stands in front of a stream's first token.
  virtual int32_t start_id() const = 0;

  virtual std::unique_ptr<Encoder> make_encoder() const = 0;
  // Appends what closes a document whose last byte is `last`.
  virtual void end_document(char last, std::vector<int32_t>& ids) const = 0;
  // The last place at which `text`, of which more may follow, can be cut in two without a change of ids; 0
  // where there is none.
  virtual size_t cut(std::string_view text) const = 0;

  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // One token as shown to people.
  virtual std::string token(int32_t id) const { return decode({&id, 1}); }

  // Throws Stopped where `watch` says so.
  std::vector<int32_t> encode(std::string_view text, const Watch& watch = {}) const;

  const std::string& file_name() const { return file_name_; }  // "tokenizer.*"
  const std::string& file() const { return file_; }
  uint64_t hash() const { return hash_; }  // FNV-1a, 64 bits, of file()
  void save(const fs::path& dir) const;    // DIR/file_name()

 protected:
  Tokenizer(std::string file_name, std::string file);
  // Throws unless every id is in [0, vocab_size).
  void check(std::span<const int32_t> ids) const;

 private:
  std::string file_name_, file_;
  uint64_t hash_;
};

// A tokenizer file of any kind Longshot knows, or a directory that holds one:
//   tokenizer.byte.json; dict.txt (fairseq); tokenizer.json (Hugging Face: byte-level BPE, WordPiece);
//   vocab.json with merges.txt (GPT-2); vocab.txt (BERT); *.model (SentencePiece).
std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path);

}  // namespace longshot
