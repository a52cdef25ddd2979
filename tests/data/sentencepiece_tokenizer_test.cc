#include <gmock/gmock.h>

#include "data/tokenizer_training.h"
#include "data/tokenizers.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;

std::unique_ptr<Tokenizer> trained(const std::string& model) {
  std::string text;
  for (uint64_t i = 0; i < 400; ++i) {
    text += fmt::format("the {} of number {} was a {}ing {} in the year {}\n", i % 3 ? "cat" : "house", i * 7 % 50,
                        i % 2 ? "sing" : "build", i % 5 ? "thing" : "tree", 1900 + i % 90);
  }
  const auto trainer = make_trainer({"sentencepiece", 400, model}, 1);
  trainer->add(0, text);
  return trainer->finish();
}

class SentencePiece : public testing::TestWithParam<const char*> {};

TEST_P(SentencePiece, LinesRoundTripWithByteFallback) {
  const auto t = trained(GetParam());
  EXPECT_EQ(t->name(), "sentencepiece");
  EXPECT_LE(t->vocab_size(), 400);
  for (const std::string text :
       {"the cat in the house\n", "a\n\n b  c\n", "  two", "日本語 😀\nüber", "\ttab\r\n", "\n\n\n", ""}) {
    EXPECT_EQ(t->decode(t->encode(text)), text);
  }
}

TEST_P(SentencePiece, LinesAreEncodedOneByOne) {
  const auto t = trained(GetParam());
  const std::vector<int32_t> first = t->encode("the cat\n"), second = t->encode("a house");
  std::vector<int32_t> both = first;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(t->encode("the cat\na house"), both);
  EXPECT_EQ(t->cut("the cat\na house"), 8u);
  EXPECT_EQ(t->cut("the cat"), 0u);
}

TEST_P(SentencePiece, VeryLongLines) {
  const auto t = trained(GetParam());
  std::string line;
  while (line.size() < 200'000) line += "the cat in the house was a singing thing ";
  EXPECT_EQ(t->decode(t->encode(line)), line);
  const std::string solid(100'000, 'a');
  std::string back = t->decode(t->encode(solid));
  std::erase(back, ' ');  // a space stands where a line without any had to be cut
  EXPECT_EQ(back, solid);
}

TEST_P(SentencePiece, SavedAndReadAgain) {
  const TemporaryDir dir;
  const auto t = trained(GetParam());
  t->save(dir.path());
  const auto again = load_tokenizer(dir.path());
  EXPECT_EQ(again->hash(), t->hash());
  EXPECT_EQ(again->encode("the house"), t->encode("the house"));
  EXPECT_EQ(trained(GetParam())->hash(), t->hash());
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePiece, testing::Values("unigram", "bpe"));

TEST(SentencePieceFiles, BadModelsAreNamed) {
  const TemporaryDir dir;
  EXPECT_THAT(error_of([&] { load_tokenizer(dir.file("x.model", "not a model at all")); }), HasSubstr("x.model"));
  EXPECT_THAT(error_of([&] { load_tokenizer(dir.file("y.model", "")); }), HasSubstr("empty"));
}

}  // namespace
}  // namespace longshot
