#include <gmock/gmock.h>
#include <sentencepiece_trainer.h>

#include <random>

#include "data/tokenizer_training.h"
#include "data/tokenizers.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;

std::unique_ptr<Tokenizer> trained(SentencePieceModel model) {
  std::string text;
  for (uint64_t i = 0; i < 400; ++i) {
    text += fmt::format("the {} of number {} was a {}ing {} in the year {}\n", i % 3 ? "cat" : "house", i * 7 % 50,
                        i % 2 ? "sing" : "build", i % 5 ? "thing" : "tree", 1900 + i % 90);
  }
  const auto trainer = make_trainer({TokenizerKind::kSentencePiece, 400, model}, 1);
  trainer->add(0, text);
  return trainer->finish([](uint64_t, uint64_t) {});
}

class SentencePiece : public testing::TestWithParam<SentencePieceModel> {};

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

INSTANTIATE_TEST_SUITE_P(Models, SentencePiece,
                         testing::Values(SentencePieceModel::kUnigram, SentencePieceModel::kBpe));

TEST(SentencePieceFiles, BadModelsAreNamed) {
  const TemporaryDir dir;
  EXPECT_THAT(error_of([&] { load_tokenizer(dir.file("x.model", "not a model at all")); }), HasSubstr("x.model"));
  EXPECT_THAT(error_of([&] { load_tokenizer(dir.file("y.model", "")); }), HasSubstr("empty"));
}

// A field of Protocol Buffers' wire format that holds bytes.
std::string field(int number, const std::string& bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) out += static_cast<char>(size | 0x80);
  return out + static_cast<char>(size) + bytes;
}

class Lines : public sentencepiece::SentenceIterator {
 public:
  bool done() const override { return at_ == 400; }
  void Next() override { line_ = fmt::format("the cat number {} sat on the mat", ++at_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  int at_ = 0;
  std::string line_ = "a line";
};

// What the library takes on trust, and falls over.
TEST(SentencePieceFiles, WhatCrashesTheLibraryIsRefusedBefore) {
  const std::string good = trained(SentencePieceModel::kUnigram)->file();
  EXPECT_THAT(error_of([&] { sentencepiece_tokenizer(good + field(1, field(1, std::string(1'000'000, 'x'))), "m"); }),
              HasSubstr("m: a piece has 1000000 bytes"));
  const auto with_map = [&](const std::string& map) {
    return error_of([&] { sentencepiece_tokenizer(good + field(3, field(2, map)), "m")->encode("a text"); });
  };
  std::mt19937_64 random(4);
  for (int i = 0; i < 50; ++i) {  // a trie of 1024 bytes that leads anywhere
    std::string map("\0\4\0\0", 4);
    for (int b = 0; b < 1024; ++b) map += static_cast<char>(random());
    EXPECT_THAT(with_map(map + std::string("x\0", 2)), HasSubstr("normalisation")) << i;
  }
  EXPECT_THAT(with_map("abc"), HasSubstr("normalisation"));
  EXPECT_THAT(with_map(std::string("\xFF\xFF\xFF\x7F", 4) + std::string(100, '\0')), HasSubstr("normalisation"));
  EXPECT_NE(error_of([&] { sentencepiece_tokenizer(good + "\x0A\xFF\xFF\xFF\xFF\x0F", "m"); }), "");
}

// A piece with a type: 1 normal, 4 a symbol of the user.
std::string piece(const std::string& text, char type) {
  return field(1, field(1, text) + std::string{0x18, type});  // 0x18: field 3, a number
}

TEST(SentencePieceFiles, SymbolsThatBeginOneAnother) {
  const std::string good = trained(SentencePieceModel::kBpe)->file();
  const auto with_symbols = [&](size_t count, const std::string& behind) {
    std::string model = good;
    for (size_t n = 1; n <= count; ++n) model += field(1, field(1, std::string(n, '#')) + "\x18\x04" + behind);
    return error_of([&] {
      const auto t = sentencepiece_tokenizer(model, "m");
      EXPECT_EQ(t->decode(t->encode(std::string(300, '#'))), std::string(300, '#'));
    });
  };
  EXPECT_EQ(with_symbols(64, ""), "");
  EXPECT_THAT(with_symbols(65, ""), HasSubstr("m: more than 64 symbols"));
  // A type that nobody knows does not take the first one away; nor do bits above the 32nd.
  EXPECT_THAT(with_symbols(65, "\x18\x63"), HasSubstr("m: more than 64 symbols"));
  std::string model = good;
  for (size_t n = 1; n <= 65; ++n) model += field(1, field(1, std::string(n, '#')) + "\x18\x84\x80\x80\x80\x10");
  EXPECT_THAT(error_of([&] { sentencepiece_tokenizer(model, "m"); }), HasSubstr("m: more than 64 symbols"));
}

// The Protocol Buffers library reads 32 bits of a field's name.
TEST(SentencePieceFiles, NoFieldIsHiddenBehindALongName) {
  const std::string good = trained(SentencePieceModel::kUnigram)->file();
  std::string hidden =
      field(3, field(2, std::string("\0\4\0\0", 4) + std::string(1024, '\x7F') + std::string("x\0", 2)));
  hidden = "\x9A\x80\x80\x80\x10" + hidden.substr(1);
  EXPECT_THAT(error_of([&] { sentencepiece_tokenizer(good + hidden, "m")->encode("a text"); }),
              HasSubstr("m: not a SentencePiece model"));
}

TEST(SentencePieceFiles, PiecesWithZeroBytesAreRefused) {
  const std::string good = trained(SentencePieceModel::kUnigram)->file();
  for (const char type : {1, 4}) {
    EXPECT_THAT(error_of([&] { sentencepiece_tokenizer(good + piece(std::string("\0#", 2), type), "m"); }),
                HasSubstr("m: a piece holds a zero byte"));
  }
}

// "a" becomes `text`: a trie of two levels, the root's base 256, behind "a" 512 with the leaf's value 0.
std::string rule(const std::string& text) {
  std::vector<uint32_t> units(1024, 0x80000000u);
  units[0] = 256u << 10;
  units[256 ^ 'a'] = ((256u ^ 'a' ^ 512u) << 10) | 256u | 'a';
  units[512] = 0x80000000u;
  std::string map("\0\x10\0\0", 4);
  map.append(reinterpret_cast<const char*>(units.data()), units.size() * 4);
  return field(3, field(2, map + text + '\0'));
}

TEST(SentencePieceFiles, ATextGrowsByASmallFactorOnly) {
  const std::string good = trained(SentencePieceModel::kUnigram)->file();
  const auto t = sentencepiece_tokenizer(good + rule(std::string(128, 'e')), "m");
  EXPECT_EQ(t->encode("a"), t->encode(std::string(128, 'e')));
  EXPECT_THAT(error_of([&] { sentencepiece_tokenizer(good + rule(std::string(129, 'e')), "m"); }),
              HasSubstr("m: a rule of normalisation puts more than 128 bytes"));
  const std::string unknown = field(2, std::string("\xE2\x02\x81\x20", 4) + std::string(4097, '?'));
  EXPECT_THAT(error_of([&] { sentencepiece_tokenizer(good + unknown, "m"); }),
              HasSubstr("m: an unknown piece is written with 4097 bytes"));
}

// Samples with what they should become: the library would print those that fail as they stand in the file.
TEST(SentencePieceFiles, SamplesInAModelAreNotPrinted) {
  const std::string good = trained(SentencePieceModel::kUnigram)->file();
  const std::string samples = field(4, field(1, field(1, "a \x1b[31mtext") + field(2, "another")));
  testing::internal::CaptureStderr();
  const auto t = sentencepiece_tokenizer(good + samples, "m");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(t->file(), good + samples);
  EXPECT_EQ(t->encode("the house"), trained(SentencePieceModel::kUnigram)->encode("the house"));
}

TEST(SentencePieceFiles, ARealTableOfNormalisationIsTaken) {
  Lines lines;
  std::string model;
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train({{"vocab_size", "40"},
                                                          {"normalization_rule_name", "nmt_nfkc_cf"},
                                                          {"minloglevel", "2"},
                                                          {"hard_vocab_limit", "false"}},
                                                         &lines, &model)
                  .ok());
  ASSERT_GT(model.size(), 100'000u);
  const auto t = sentencepiece_tokenizer(model, "m");
  EXPECT_EQ(t->encode("THE \uFF43\uFF41\uFF54"), t->encode("the cat"));
  // Its bytes changed one at a time: refused or harmless.
  const size_t map = model.find("nmt_nfkc_cf");
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string bad = model;
    bad[map + 16 + random() % (model.size() - map - 16)] ^= static_cast<char>(1 + random() % 255);
    error_of([&] { sentencepiece_tokenizer(bad, "m")->encode("THE \uFF43\uFF41\uFF54 of \u00C4 \u1E9B\u0323"); });
  }
}

}  // namespace
}  // namespace longshot
