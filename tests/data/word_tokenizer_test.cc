// fairseq's words: the dictionary's order and the ids of the reference's own data-bin.
#include <gmock/gmock.h>

#include <map>

#include "base/rng.h"
#include "data/tokenizers.h"
#include "data/utf8.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

WordCounts counted(std::string_view text) {
  WordCounts counts;
  scan_words(
      text, [&](std::string_view word) { counts.add(word); }, [](const char*) {});
  return counts;
}

TEST(Words, AreThoseOfAByteByByteWalk) {
  // Bytes that matter: spaces of one, two and three bytes, their parts, controls, letters of ASCII and beyond.
  constexpr std::string_view kPieces[] = {" ",        "\n",   "\x1f", "\x1b",     "!",        "a",
                                          "b",        "\x7f", "\xC2", "\xC2\x85", "\xC3\xA9", "\xE2\x80\x83",
                                          "\xE2\x80", "\x80", "\xFF", "\x01"};
  for (uint64_t n = 0; n < 3000; ++n) {
    std::string text;
    const uint64_t length = random_bits(3, Stream::kTest, n) % (n % 2 ? 24 : 150);
    for (uint64_t i = 0; i < length; ++i) {
      const uint64_t pick = random_bits(4, Stream::kTest, n, i);
      text += pick % 3 ? "letters"[pick / 3 % 7] : kPieces[pick / 3 % std::size(kPieces)][0];
      if (pick % 3 == 0) text += kPieces[pick / 3 % std::size(kPieces)].substr(1);
    }
    const char* const end = text.data() + text.size();
    std::vector<std::pair<ptrdiff_t, size_t>> plain, scanned;  // place and length of words; spaces have length 0
    for (const char* p = text.data(); p < end;) {
      const char* word = p;
      while (p < end && space_length(p, end) == 0) ++p;
      if (p > word) plain.emplace_back(word - text.data(), p - word);
      if (p == end) break;
      plain.emplace_back(p - text.data(), 0);
      p += space_length(p, end);
    }
    scan_words(
        text, [&](std::string_view word) { scanned.emplace_back(word.data() - text.data(), word.size()); },
        [&](const char* p) { scanned.emplace_back(p - text.data(), 0); });
    ASSERT_EQ(scanned, plain) << testing::PrintToString(text);
  }
}

TEST(Words, KeysDoNotDependOnWhatStandsBehind) {
  const std::string text = "antidisestablishmentarianism and what stands behind it";
  for (size_t n = 0; n <= 28; ++n) {
    const std::string alone = text.substr(0, n);
    const WordKey key(alone), within(std::string_view(text).substr(0, n), text.data() + text.size());
    EXPECT_EQ(key.head, within.head) << n;
    EXPECT_EQ(key.hash, within.hash) << n;
    EXPECT_NE(key.hash, WordKey(std::string_view(text).substr(0, n + 1)).hash) << n;
  }
}

TEST(WordTokenizer, DictionaryIsSortedByCountThenCodePointAndPaddedToEight) {
  // Special words of the text keep their ids and are not listed.
  EXPECT_EQ(make_dict(counted("b a c b é z <unk> <unk> </s> Z"), 0),
            "b 2\nZ 1\na 1\nc 1\nz 1\né 1\nmadeupword0000 0\nmadeupword0001 0\nmadeupword0002 "
            "0\nmadeupword0003 0\nmadeupword0004 0\n"
            "madeupword0005 0\n");
}

TEST(WordTokenizer, VocabularySizeCountsTheSpecialEntries) {
  EXPECT_EQ(make_dict(counted("b a c b a b"), 6), "b 3\na 2\nmadeupword0000 0\nmadeupword0001 0\n");
  EXPECT_THAT(error_of([] { make_dict(counted("a"), 4); }), HasSubstr("--vocab-size 4"));
  EXPECT_EQ(make_dict(counted("a b " + std::string((1 << 16) + 1, 'x')), 0), make_dict(counted("a b"), 0));
}

TEST(WordTokenizer, EveryLineEndsWithTheEndSymbol) {
  const auto words = word_tokenizer("the 3\ncat 2\n", "dict");
  EXPECT_THAT(words->encode("the  cat\n\n<unk> dog the"), ElementsAre(4, 5, 2, 2, 3, 3, 4));
  EXPECT_THAT(words->encode("the\r\ncat\rthe\xC2\xA0"
                            "cat\x1c"),
              ElementsAre(4, 2, 5, 2, 4, 5));
  std::vector<int32_t> ids;
  words->end_document('t', ids);
  words->end_document('\n', ids);
  EXPECT_THAT(ids, ElementsAre(2));
  EXPECT_EQ(words->vocab_size(), 6);
  EXPECT_EQ(words->start_id(), 2);
}

TEST(WordTokenizer, DecodesToNormalisedText) {
  const auto words = word_tokenizer("the 3\ncat 2\n", "dict");
  EXPECT_EQ(words->decode(words->encode("  the \t cat\n\n dog\n")), "the cat\n\n<unk>\n");
  EXPECT_THAT(error_of([&] { words->decode(std::vector<int32_t>{6}); }), HasSubstr("id 6 is outside"));
  EXPECT_THAT(error_of([&] { words->decode(std::vector<int32_t>{-1}); }), HasSubstr("id -1 is outside"));
}

TEST(WordTokenizer, BadDictionariesAreNamedWithTheLine) {
  const auto load = [](std::string text) { return error_of([&] { word_tokenizer(std::move(text), "d.txt"); }); };
  EXPECT_THAT(load("the 3\ncat\n"), HasSubstr("d.txt, line 2"));
  EXPECT_THAT(load("the 3\ncat x\n"), HasSubstr("'x' is not a count"));
  EXPECT_THAT(load("the 3\nthe 2\n"), HasSubstr("a second time"));
  EXPECT_THAT(load(""), HasSubstr("no words"));
  EXPECT_EQ(load(std::string(1 << 16, 'x') + " 1\n"), "");
  EXPECT_THAT(load(std::string((1 << 16) + 1, 'x') + " 1\n"),
              HasSubstr("line 1: a word of 65537 bytes; at most 65536"));
}

// Dictionary and ids of `reference`, whose text/ holds `name` as the split `split`.
void expect_reference(const fs::path& reference, const std::map<std::string, std::string>& split_of, int64_t vocab) {
  const auto words = load_tokenizer(reference / "data-bin/dict.txt");
  EXPECT_EQ(words->vocab_size(), vocab);
  for (const auto& [name, split] : split_of) {
    const std::string text = read_text(reference / "text" / name);
    if (split == "train") {
      EXPECT_EQ(make_dict(counted(text), 0), words->file());
    }
    const std::vector<int32_t> ids = words->encode(text);
    const std::vector<uint16_t> narrow(ids.begin(), ids.end());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(narrow.data()), narrow.size() * 2),
              read_text(reference / "data-bin" / (split + ".bin")))
        << name;
  }
}

TEST(WordTokenizer, ReferenceDataBinTokenByToken) {
  expect_reference(fixture(""), {{"train.txt", "train"}, {"valid.txt", "valid"}, {"test.txt", "test"}}, 328);
  if (fs::exists(shared("reference"))) {
    expect_reference(shared("reference"),
                     {{"wiki.train.tokens", "train"}, {"wiki.valid.tokens", "valid"}, {"wiki.short.tokens", "test1"}},
                     26912);
  }
}

TEST(WordTokenizer, WikiText103HasItsPublishedCounts) {
  SKIP_WITHOUT(shared("corpora/wikitext-103"));
  const auto words = word_tokenizer("the 1\n", "dict");
  EXPECT_EQ(words->encode(read_text(shared("corpora/wikitext-103/wiki.valid.tokens"))).size(), 217646u);
  EXPECT_EQ(words->encode(read_text(shared("corpora/wikitext-103/wiki.test.tokens"))).size(), 245569u);
}

TEST(ByteTokenizer, AnyBytesRoundTrip) {
  const auto bytes = byte_tokenizer();
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::string text = odd_text(seed, 200);
    EXPECT_EQ(bytes->decode(bytes->encode(text)), text);
  }
}

// Cutting a text where the tokenizer allows it changes no id.
TEST(Tokenizers, CutsChangeNothing) {
  const auto words = word_tokenizer(make_dict(counted(odd_text(7, 3000)), 40), "dict");
  const auto bytes = byte_tokenizer();
  for (const Tokenizer* tokenizer : {words.get(), bytes.get()}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const std::string text = odd_text(seed, 40);
      const std::vector<int32_t> whole = tokenizer->encode(text);
      for (size_t limit = 0; limit <= text.size(); ++limit) {
        const size_t cut = tokenizer->cut(std::string_view(text).substr(0, limit));
        ASSERT_LE(cut, limit);
        std::vector<int32_t> parts = tokenizer->encode(std::string_view(text).substr(0, cut));
        const std::vector<int32_t> rest = tokenizer->encode(std::string_view(text).substr(cut));
        parts.insert(parts.end(), rest.begin(), rest.end());
        ASSERT_EQ(parts, whole) << tokenizer->name() << " seed " << seed << " cut " << cut;
      }
    }
  }
}

TEST(Tokenizers, SaveAndLoadKeepTheHash) {
  const TemporaryDir dir;
  const auto words = word_tokenizer("the 3\ncat 2\n", "dict");
  words->save(dir.path());
  EXPECT_EQ(load_tokenizer(dir.path())->hash(), words->hash());
  EXPECT_NE(byte_tokenizer()->hash(), words->hash());
  const TemporaryDir other;
  byte_tokenizer()->save(other.path());
  EXPECT_EQ(load_tokenizer(other.path())->name(), "byte");
}

TEST(WordMap, FindsWhatWasInserted) {
  WordMap map;
  std::vector<std::string> words;
  for (int i = 0; i < 20000; ++i)
    words.push_back(fmt::format("{}w{}", std::string(static_cast<size_t>(i % 23), 'x'), i));
  for (size_t i = 0; i < words.size(); ++i) ASSERT_EQ(map.insert(words[i]), i);
  for (size_t i = 0; i < words.size(); ++i) {
    ASSERT_EQ(map.find(words[i]), i);
    ASSERT_EQ(map.word(i), words[i]);
  }
  EXPECT_EQ(map.find("absent"), WordMap::kNone);
  EXPECT_EQ(map.insert(""), words.size());
}

}  // namespace
}  // namespace longshot
