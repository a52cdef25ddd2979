#pragma once
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "data/tokenizer.h"

namespace longshot {

// A directory of the test's own, removed at its end.
class TemporaryDir {
 public:
  TemporaryDir() {
    std::string pattern = (fs::temp_directory_path() / "longshot-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw Error("cannot make a temporary directory");
    path_ = pattern;
  }
  TemporaryDir(const TemporaryDir&) = delete;
  TemporaryDir& operator=(const TemporaryDir&) = delete;
  ~TemporaryDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  // Writes a file and returns its name.
  std::string file(const std::string& name, std::string_view text) const {
    make_directories((path_ / name).parent_path());
    write_atomically(path_ / name, text);
    return (path_ / name).string();
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// What the paper's own code made, small; see fixtures/README.md.
inline fs::path fixture(const std::string& name) { return fs::path(LONGSHOT_SOURCE_DIR) / "tests/fixtures" / name; }
inline fs::path shared(const std::string& name) { return fs::path(LONGSHOT_SOURCE_DIR) / ".." / "shared" / name; }
#define SKIP_WITHOUT(path) \
  if (!fs::exists(path)) GTEST_SKIP() << (path) << " is not there"

// The message of the Error that f() throws; "" if none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Text of all that tokenizers stumble over: letters, runs of spaces, contractions, CRLF, emoji, CJK,
// combining marks, NULs, and bytes that are not UTF-8.
inline std::string odd_text(uint64_t seed, size_t pieces) {
  // clang-format off
  static const std::vector<std::string> kPieces{
      "a", "the", "word", "Word", "I'm", "don't", "'ll", "we've", "'S", "x1", "2026", "3.14", "...", "!?",
      "--", "(", ")", "\"", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\v", "\x1c", "\xC2\x85",
      "\xC2\xA0", "\xE2\x80\x83", "\xE3\x80\x80", "\xE2\x80\xA8", "é", "e\u0301", "ñandú", "ß", "İ", "日本語",
      "漢", "한국어", "العربية", "हिन्दी", "😀", "👩‍👩‍👧", "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA", "Ω", "²", "½", "Ⅷ",
      "١٢", std::string(1, '\0'), "\x7F", "\xFF", "\xC0\x80", "\xE2\x82", "\xED\xA0\x80", "\xF5\x80", "\x80",
      "<unk>", "</s>", "##", "@-@"};
  // clang-format on
  std::mt19937_64 random(seed);
  std::string text;
  for (size_t i = 0; i < pieces; ++i) text += kPieces[random() % kPieces.size()];
  return text;
}

}  // namespace longshot
