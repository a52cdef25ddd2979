// WordPiece with BERT's normaliser: the examples of the original's own tests.
#include <gmock/gmock.h>

#include <ctime>

#include "data/hf_tokenizer.h"
#include "data/tokenizers.h"
#include "data/unicode.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::HasSubstr;

std::unique_ptr<Tokenizer> with_words(const std::vector<std::string>& words) {
  std::string vocab = "[UNK]\n[CLS]\n[SEP]\n";
  for (const std::string& word : words) vocab += word + "\n";
  return hf_tokenizer(bert_json(vocab, "vocab.txt"), "vocab.txt");
}

std::vector<std::string> tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> out;
  for (const int32_t id : tokenizer.encode(text)) out.push_back(tokenizer.token(id));
  return out;
}

using Words = std::vector<std::string>;

TEST(WordPiece, LongestFirstAndUnknownAsAWhole) {
  const auto t = with_words({"want", "##want", "##ed", "wa", "un", "runn", "##ing", ","});
  EXPECT_EQ(tokens(*t, ""), Words{});
  EXPECT_EQ(tokens(*t, "unwanted running"), (Words{"un", "##want", "##ed", "runn", "##ing"}));
  EXPECT_EQ(tokens(*t, "unwantedX running"), (Words{"[UNK]", "runn", "##ing"}));
  EXPECT_EQ(tokens(*t, "UNwant\u00E9d,running"), (Words{"un", "##want", "##ed", ",", "runn", "##ing"}));
  EXPECT_EQ(tokens(*t, std::string(101, 'w')), (Words{"[UNK]"}));
  EXPECT_EQ(t->decode(t->encode("unwanted, running")), "unwanted , running");
}

TEST(WordPiece, NormaliserLowersStripsAndSplits) {
  const auto t = with_words({"hello", "!",   "how", "are", "you", "?",   "ah", "博", "推", "zz",
                             "ab",    "##c", "a",   "ᄒ",  "##ᅡ", "##ᆫ", "-",  "¿",  "i",  "σ"});
  EXPECT_EQ(tokens(*t, " \tHeLLo!how  \n Are yoU?  "), (Words{"hello", "!", "how", "are", "you", "?"}));
  EXPECT_EQ(tokens(*t, "H\u00E9llo"), (Words{"hello"}));
  EXPECT_EQ(tokens(*t, "He\u0301llo"), (Words{"hello"}));
  EXPECT_EQ(tokens(*t, "ah\u535A\u63A8zz"), (Words{"ah", "博", "推", "zz"}));
  EXPECT_EQ(tokens(*t, std::string("a\0b\x0B\xEF\xBF\xBD\u200Bc", 11)), (Words{"ab", "##c"}));  // control characters go
  EXPECT_EQ(tokens(*t, "한"), (Words{"ᄒ", "##ᅡ", "##ᆫ"}));  // NFD takes syllables apart
  EXPECT_EQ(tokens(*t, "a-a¿a"), (Words{"a", "-", "a", "¿", "a"}));
  EXPECT_EQ(tokens(*t, "İ Σ"), (Words{"i", "σ"}));
}

TEST(WordPiece, CasedVocabulariesKeepCaseAndAccents) {
  const auto t = with_words({"Hello", "hello", "Héllo"});
  EXPECT_EQ(tokens(*t, "Hello hello Héllo"), (Words{"Hello", "hello", "Héllo"}));
}

TEST(WordPiece, CutsChangeNothing) {
  const auto t =
      with_words({"a", "##a", "the", "word", "##s", ".", "!", "?", "-", "日", "本", "語", "i", "'", "m", "x", "##1"});
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text = odd_text(seed, 40);
    const std::vector<int32_t> whole = t->encode(text);
    const size_t cut = t->cut(text);
    std::vector<int32_t> parts = t->encode(std::string_view(text).substr(0, cut));
    const std::vector<int32_t> rest = t->encode(std::string_view(text).substr(cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    ASSERT_EQ(parts, whole) << testing::PrintToString(text);
  }
}

TEST(WordPiece, BadVocabulariesAreNamed) {
  const auto load = [](const std::string& vocab) {
    return error_of([&] { hf_tokenizer(bert_json(vocab, "v.txt"), "v.txt"); });
  };
  EXPECT_THAT(load("a\nb\n"), HasSubstr("has no [UNK]"));
  EXPECT_THAT(load("[UNK]\na\n"), HasSubstr("no [SEP]"));
  EXPECT_THAT(load("[UNK]\n[SEP]\na\na\n"), HasSubstr("line 4"));
}

TEST(Utf8, InvalidBytesAreThoseTheDecoderCallsSo) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::string text = odd_text(seed, 20);
    if (seed % 2) text[seed % text.size()] = static_cast<char>(seed * 31);
    uint64_t bytes = 0;
    size_t first = 0;
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
      const CodePoint c = decode_utf8(p, end);
      if (c.value == kInvalidCodePoint && bytes++ == 0) first = static_cast<size_t>(p - text.data());
      p += c.length;
    }
    const InvalidUtf8 found = find_invalid_utf8(text);
    ASSERT_EQ(found.bytes, bytes) << seed;
    ASSERT_EQ(found.first, first) << seed;
    ASSERT_EQ(find_invalid_utf8(replace_invalid_utf8(text)).bytes, 0u);
  }
}

TEST(Unicode, AVowelBehindAHangulSyllableStays) {
  const std::string text = "\u110b\u1161\u11a7\u11a8 \uc544\u11a7e\u0301";  // U+11A7 is no final consonant
  EXPECT_EQ(nfc(text), "\uc544\u11a7\u11a8 \uc544\u11a7\u00e9");
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");
}

TEST(WordPieceTokenizer, LongWordsTakeTimeByTheirLength) {
  std::string vocabulary = "[UNK]\n[SEP]\na\n##a\n";
  std::string json = bert_json(vocabulary, "vocab.txt");
  const std::string most = "\"max_input_chars_per_word\": 100";
  json.replace(json.find(most), most.size(), "\"max_input_chars_per_word\": 10000");
  const auto tokenizer = hf_tokenizer(json, "tokenizer.json");
  std::string text;
  for (int word = 0; word < 100; ++word) text += std::string(9999, 'a') + " ";
  const std::clock_t start = std::clock();
  EXPECT_EQ(tokenizer->encode(text).size(), 999900u);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5);
}

TEST(WordPieceTokenizer, LongTokensAreRefused) {
  const auto load = [](size_t bytes) {
    const std::string vocabulary = "[UNK]\n[SEP]\na\n##" + std::string(bytes - 2, 'a') + "\n";
    return error_of([&] { hf_tokenizer(bert_json(vocabulary, "v.txt"), "v.txt"); });
  };
  EXPECT_EQ(load(512), "");
  EXPECT_THAT(load(9993), testing::HasSubstr("has 9993 bytes; at most 512"));
}

TEST(WordPieceTokenizer, AStopIsHeededInsideOfAText) {
  const auto tokenizer = hf_tokenizer(bert_json("[UNK]\n[SEP]\na\n##a\n", "v.txt"), "v.txt");
  int asked = 0;
  const Watch watch{.should_stop = [&] { return ++asked > 1; }};
  EXPECT_THROW(tokenizer->encode(std::string(1 << 18, 'a'), watch), Stopped);
  EXPECT_EQ(asked, 2);
}

TEST(WordPieceTokenizer, TokensThatAreNotUtf8AreRefused) {
  EXPECT_THAT(error_of([] { bert_json("[UNK]\n[SEP]\n\xFF\n\xFE\n", "vocab.txt"); }),
              testing::HasSubstr("vocab.txt, line 3: '\\xff' is not UTF-8"));
}

}  // namespace
}  // namespace longshot
