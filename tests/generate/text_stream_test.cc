#include "generate/text_stream.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/scratch.h"
#include "train/support.h"

namespace longshot {
namespace {

class StreamTest : public testing::Test {
 protected:
  StreamTest() {
    write_text(dir_ / "tokenizer.byte.json", "{\"type\": \"byte\"}\n");
    bytes_ = load_tokenizer(dir_ / "tokenizer.byte.json");
  }
  static void write_text(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  // What is shown after each byte of `text`, parts apart by '|'.
  std::string shown(const std::string& text, const std::vector<std::string>& stops = {}) const {
    TextStream stream(*bytes_, {}, stops);
    std::string out;
    for (const char c : text) {
      const std::string part = stream.push(static_cast<unsigned char>(c));
      out += part.empty() ? "" : part + "|";
    }
    return out + stream.finish();
  }
  ScratchDir dir_;
  std::unique_ptr<Tokenizer> bytes_;
};

TEST_F(StreamTest, CharactersAreNotCut) {
  EXPECT_EQ(shown("aé€😀b"), "a|é|€|😀|b|");
  EXPECT_EQ(shown("a\xE2\x82"), "a|\xE2\x82") << "what stays unfinished comes at the end";
  EXPECT_EQ(shown("\xE2"
                  "a"),
            "\xE2"
            "a|")
      << "and once it is clear that nothing will finish it";
  EXPECT_EQ(unfinished_utf8("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(unfinished_utf8("\x80\x80\x80\x80"), 0u);
  EXPECT_EQ(unfinished_utf8(""), 0u);
}

TEST_F(StreamTest, AStopStringIsNeverShownNotEvenItsBeginning) {
  EXPECT_EQ(shown("one, two. three", {". "}), "o|n|e|,| |t|w|o|");
  EXPECT_EQ(shown("a.b", {". "}), "a|.b|") << "held until it is clear";
  EXPECT_EQ(shown("a.", {". "}), "a|.") << "held to the end";
  EXPECT_EQ(shown("xaab", {"aab", "b"}), "x|") << "the earliest counts";
  EXPECT_EQ(shown("aaab", {"aab"}), "a|");
  EXPECT_THROW(TextStream(*bytes_, {}, {""}), Error);
}

TEST_F(StreamTest, LongTextsAreDecodedInPieces) {
  const std::string text = small_text(1000);
  std::string out;
  TokenText tokens(*bytes_);
  for (const char c : text) out += tokens.push(static_cast<unsigned char>(c));
  EXPECT_EQ(out, text);
}

// Words apart by spaces: what a token adds depends on whether it is the first.
TEST_F(StreamTest, SpacesBetweenWords) {
  ScratchDir words;
  write_text(words / "dict.txt", "the 3\nriver 2\nruns 1\n");
  const auto tokenizer = load_tokenizer(words / "dict.txt");
  const std::vector<int32_t> ids = tokenizer->encode("the river runs the river");
  const std::string whole = tokenizer->decode(ids);
  TokenText from_start(*tokenizer);
  std::string out;
  for (const int32_t id : ids) out += from_start.push(id);
  EXPECT_EQ(out, whole);
  TokenText behind(*tokenizer, std::span(ids).first(2));
  EXPECT_EQ(tokenizer->decode(std::span(ids).first(2)) + behind.push(ids[2]),
            tokenizer->decode(std::span(ids).first(3)));
}

}  // namespace
}  // namespace longshot
