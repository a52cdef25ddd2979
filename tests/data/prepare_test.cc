#include "data/prepare.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/records.h"
#include "context.h"
#include "data/token_set.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class PrepareTest : public testing::Test {
 protected:
  // The whole set, file by file.
  static std::map<std::string, std::string> contents(const fs::path& set) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(set))
      files[entry.path().filename().string()] = read_text(entry.path());
    return files;
  }
  PrepareConfig config(const std::string& tokenizer) const {
    PrepareConfig config;
    config.tokenizer = tokenizer;
    config.out = (dir_ / "set").string();
    config.overwrite = true;
    return config;
  }
  std::string decoded(const std::string& split) const {
    const TokenSet set(dir_ / "set");
    const TokenFile& file = set.split(split);
    std::vector<int32_t> ids(static_cast<size_t>(file.size()));
    file.read(0, ids);
    return set.tokenizer().decode(ids);
  }
  std::vector<uint64_t> documents(const std::string& split) const {
    const TokenSet set(dir_ / "set");
    const auto d = set.split(split).documents();
    return {d.begin(), d.end()};
  }
  TemporaryDir dir_;
  std::string phase_;
};

TEST_F(PrepareTest, SplitsGivenAsFiles) {
  PrepareConfig c = config("word");
  c.train = {dir_.file("a.txt", "the cat sat\non the mat\n"), dir_.file("b.txt", "the end")};
  c.valid = {dir_.file("v.txt", "the dog\n")};
  const PrepareResult result = prepare(test_context(), c, {});
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(decoded("train"), "the cat sat\non the mat\nthe end\n");
  EXPECT_EQ(decoded("valid"), "the <unk>\n");
  EXPECT_THAT(documents("train"), ElementsAre(0, 8));
  EXPECT_EQ(result.splits[0].counts.bytes, 30u);
  EXPECT_EQ(result.splits[0].counts.words, 8u);
  const TokenSet set(dir_ / "set");
  EXPECT_THAT(set.names(), ElementsAre("train", "valid"));
  EXPECT_THAT(error_of([&] { set.split("test"); }), HasSubstr("there are: train, valid"));
  EXPECT_EQ(read_json(dir_ / "set/meta.json")["tokenizer"]["name"], "word");
}

// A word each would be a vocabulary as large as the text.
TEST_F(PrepareTest, TheDefaultTokenizerHasABoundedVocabulary) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += fmt::format("word{} ", i * 7919);
  PrepareConfig c;
  c.train = {dir_.file("a.txt", text)};
  c.out = (dir_ / "set").string();
  EXPECT_LE(prepare(test_context(), c, {}).vocab_size, 8192);
}

TEST_F(PrepareTest, WikiTextArticlesAreDocuments) {
  PrepareConfig c = config("byte");
  const std::string first = " \n = One = \n \n text , x \n = 1 and y = \n more \n \n = = Part = = \n \n z \n \n";
  const std::string second = " = Two = \n \n text \n";
  c.train = {dir_.file("wiki.train.tokens", first + second)};
  prepare(test_context(), c, {});
  EXPECT_EQ(decoded("train"), first + second);
  EXPECT_THAT(documents("train"), ElementsAre(0, first.size()));
}

TEST_F(PrepareTest, SeparatorLinesEndDocumentsAndAreNotText) {
  PrepareConfig c = config("byte");
  c.document_separator = "%%";
  c.train = {dir_.file("a.txt", "one\n%%\ntwo\n%%\r\n%%\nthree")};
  prepare(test_context(), c, {});
  EXPECT_EQ(decoded("train"), "one\ntwo\nthree\n");
  EXPECT_THAT(documents("train"), ElementsAre(0, 4, 8));
}

TEST_F(PrepareTest, OneFileIsCutAtLineStarts) {
  PrepareConfig c = config("byte");
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("line number {}\n", i);
  c.inputs = {dir_.file("novel.txt", text)};
  c.split = {0.8, 0.1, 0.1};
  prepare(test_context(), c, {});
  const std::string train = decoded("train"), valid = decoded("valid"), test = decoded("test");
  EXPECT_EQ(train + valid + test, text);
  for (const std::string& part : {train, valid, test}) EXPECT_TRUE(part.starts_with("line") && part.ends_with('\n'));
  EXPECT_NEAR(static_cast<double>(train.size()), 0.8 * static_cast<double>(text.size()), 20);
  EXPECT_NEAR(static_cast<double>(valid.size()), 0.1 * static_cast<double>(text.size()), 20);
}

TEST_F(PrepareTest, ManyDocumentsAreDrawnBySeed) {
  PrepareConfig c = config("byte");
  std::string text;
  for (int i = 0; i < 2000; ++i) text += fmt::format("document {}\n%%\n", i);
  c.inputs = {dir_.file("many.txt", text)};
  c.document_separator = "%%";
  c.split = {0.5, 0.25, 0.25};
  const PrepareResult result = prepare(test_context(), c, {});
  EXPECT_NEAR(static_cast<double>(result.splits[0].counts.documents), 1000, 100);
  EXPECT_NEAR(static_cast<double>(result.splits[1].counts.documents), 500, 80);
  EXPECT_EQ(result.splits[0].counts.documents + result.splits[1].counts.documents + result.splits[2].counts.documents,
            2000u);
  const auto once = contents(dir_ / "set");
  prepare(test_context(), c, {});
  EXPECT_EQ(contents(dir_ / "set"), once);
  c.seed = 2;
  prepare(test_context(), c, {});
  EXPECT_NE(contents(dir_ / "set"), once);
}

// Several chunks, documents of all sizes.
std::string long_text() {
  std::string text;
  for (uint64_t i = 0; text.size() < (5u << 20); ++i) {
    text += fmt::format("\n\n = Title {} = \n\n", i);
    text += odd_text(i, i % 7 == 0 ? 60000 : 500);
  }
  return text;
}

TEST_F(PrepareTest, SameBytesWhateverTheThreadsAndWhereverItWasStopped) {
  for (const auto& [tokenizer, split_by] :
       {std::pair{"byte", SplitBy::kDocument}, {"word", SplitBy::kPosition}, {"bpe", SplitBy::kDocument}}) {
    PrepareConfig c = config(tokenizer);
    c.split_by = split_by;
    c.vocab_size = 400;
    c.allow_binary = true;
    c.inputs = {dir_.file("a.txt", long_text()), dir_.file("b.txt", long_text() + "end")};
    c.format = TextFormat::kWikiText;
    c.split = {0.8, 0.1, 0.1};
    Context one(1), three(3);
    prepare(one, c, {});
    const auto once = contents(dir_ / "set");
    prepare(three, c, {});
    EXPECT_TRUE(contents(dir_ / "set") == once) << tokenizer << ": another number of threads";

    // Stopped at every batch.
    fs::remove_all(dir_ / "set");
    int runs = 0;
    while (true) {
      phase_.clear();
      const bool finished = prepare(one, c,
                                    {.stop = [&] { return phase_ == "encoding"; },
                                     .progress = [&](const PrepareProgress& p) { phase_ = p.phase; }})
                                .finished;
      ++runs;
      if (finished) break;
      EXPECT_FALSE(fs::exists(dir_ / "set"));
      ASSERT_LT(runs, 100);
    }
    EXPECT_GE(runs, 2);
    EXPECT_TRUE(contents(dir_ / "set") == once) << tokenizer << ": stopped " << runs << " times";
  }
}

// Inside of a batch; what was done before it is kept.
TEST_F(PrepareTest, AStopIsHeededWhileTextIsEncoded) {
  PrepareConfig c = config("bpe");
  c.vocab_size = 300;
  std::string text;
  while (text.size() < (9 << 20)) text += "the cat sat on the mat\n";
  c.train = {dir_.file("a.txt", text)};
  Context one(1);
  int asked = 0;
  EXPECT_FALSE(prepare(one, c,
                       {.stop = [&] { return phase_ == "encoding" && ++asked > 1; },
                        .progress = [&](const PrepareProgress& p) { phase_ = p.phase; }})
                   .finished);
  EXPECT_EQ(asked, 2);
  EXPECT_GT(read_json(dir_ / "set.partial/job.json")["place"]["offset"].get<int64_t>(), 1 << 20);
  EXPECT_TRUE(prepare(one, c, {}).finished);
  EXPECT_EQ(decoded("train"), text + "<|endoftext|>");
}

TEST_F(PrepareTest, BadInputLeavesNothingUnderTheFinalName) {
  const auto run = [&](PrepareConfig c) {
    std::string message = error_of([&] { prepare(test_context(), c, {}); });
    EXPECT_FALSE(fs::exists(c.out));
    return message;
  };
  PrepareConfig c = config("word");
  EXPECT_THAT(run(c), HasSubstr("give either --train"));
  c.train = {(dir_ / "absent.txt").string()};
  EXPECT_THAT(run(c), HasSubstr("no such file"));
  c.train = {dir_.file("empty.txt", "")};
  EXPECT_THAT(run(c), HasSubstr("no words"));
  c.tokenizer = "byte";
  EXPECT_THAT(run(c), HasSubstr("train split has no text"));
  c.train = {dir_.file("binary.txt", std::string(1000, '\1'))};
  EXPECT_THAT(run(c), HasSubstr("does not look like text"));
  c.train = {dir_.file("wide.txt", "\xFF\xFEh\0i\0")};
  EXPECT_THAT(run(c), HasSubstr("UTF-16"));
  c.train = {dir_.file("x.txt.gz", "plain text")};
  EXPECT_THAT(run(c), HasSubstr("not gz data"));
  c.train = {dir_.file("ok.txt", "text")};
  c.tokenizer = "wrod";
  EXPECT_THAT(run(c), HasSubstr("--tokenizer wrod"));
  c.tokenizer = "byte";
  c.train = {};
  c.inputs = {dir_.file("ok.txt", "text")};
  c.split = {0.5, 0.2, 0.2};
  EXPECT_THAT(run(c), HasSubstr("--split"));
  c.split = {0.5, 0.25, 0.25};
  EXPECT_THAT(run(c), HasSubstr("--split 1,0,0"));
}

TEST_F(PrepareTest, ASetIsNotOverwrittenUnasked) {
  PrepareConfig c = config("byte");
  c.train = {dir_.file("a.txt", "text")};
  prepare(test_context(), c, {});
  c.overwrite = false;
  EXPECT_THAT(error_of([&] { prepare(test_context(), c, {}); }), HasSubstr("--overwrite"));
  EXPECT_EQ(decoded("train"), "text\n");
}

TEST_F(PrepareTest, AByteOrderMarkIsNotText) {
  PrepareConfig c = config("byte");
  c.train = {dir_.file("a.txt", "\xEF\xBB\xBFtext\r\nmore\n")};
  prepare(test_context(), c, {});
  EXPECT_EQ(decoded("train"), "text\r\nmore\n");
}

TEST_F(PrepareTest, ADataBinBecomesATokenSet) {
  std::map<fs::path, uint64_t> documents{{fixture("data-bin"), 1}};
  if (fs::exists(shared("reference"))) documents[shared("reference/data-bin")] = 106;
  for (const auto& [source, count] : documents) {
    PrepareConfig c = config("word");
    c.inputs = {source.string()};
    c.overwrite = true;
    const PrepareResult result = prepare(test_context(), c, {});
    const TokenSet from(source), to(dir_ / "set");
    EXPECT_EQ(result.splits[0].counts.documents, count);
    EXPECT_EQ(to.tokenizer().hash(), from.tokenizer().hash());
    for (const char* name : {"train", "valid"}) {
      std::vector<int32_t> a(static_cast<size_t>(from.split(name).size())),
          b(static_cast<size_t>(to.split(name).size()));
      from.split(name).read(0, a);
      to.split(name).read(0, b);
      EXPECT_EQ(a, b) << name;
    }
  }
}

TEST_F(PrepareTest, MixedSetsAreFound) {
  PrepareConfig c = config("word");
  c.train = {dir_.file("a.txt", "one two")};
  prepare(test_context(), c, {});
  write_atomically(dir_ / "set/tokenizer.dict.txt", "other 1\n");
  EXPECT_THAT(error_of([&] { TokenSet(dir_ / "set"); }), HasSubstr("mixed"));
}

TEST_F(PrepareTest, FewDocumentsAreCutInTheirOrder) {
  PrepareConfig c = config("byte");
  const auto lines = [&](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += fmt::format("{{\"text\": \"document {}\"}}\n", i);
    return dir_.file("few.jsonl", text);
  };
  for (const int n : {3, 4, 5, 20, 199}) {
    c.inputs = {lines(n)};
    const PrepareResult result = prepare(test_context(), c, {});
    ASSERT_EQ(result.splits.size(), 3u);
    uint64_t all = 0;
    for (const auto& [name, counts] : result.splits) {
      EXPECT_GE(counts.documents, 1u) << name << " of " << n;
      all += counts.documents;
    }
    EXPECT_EQ(all, static_cast<uint64_t>(n));
    EXPECT_TRUE(decoded("train").starts_with("document 0\n"));
    EXPECT_TRUE(decoded("test").ends_with(fmt::format("document {}\n", n - 1)));
  }
  // The advice works.
  c.inputs = {lines(2)};
  EXPECT_THAT(error_of([&] { prepare(test_context(), c, {}); }),
              AllOf(HasSubstr("only 2 documents"), HasSubstr("--split 1,0,0")));
  c.split = {1, 0, 0};
  EXPECT_EQ(prepare(test_context(), c, {}).splits[0].counts.documents, 2u);
  c.split = {0.5, 0, 0.5};
  EXPECT_EQ(prepare(test_context(), c, {}).splits[1].counts.documents, 1u);
  c.split = {0.9, 0.05, 0.05};
  c.inputs = {lines(3)};
  c.split_by = SplitBy::kDocument;
  EXPECT_THAT(error_of([&] { prepare(test_context(), c, {}); }), HasSubstr("--split-by auto"));
  // Many documents can be cut by position too.
  c.inputs = {lines(1000)};
  c.split_by = SplitBy::kPosition;
  EXPECT_NEAR(static_cast<double>(prepare(test_context(), c, {}).splits[0].counts.documents), 900, 10);
}

TEST_F(PrepareTest, BytesThatAreNotUtf8AreCountedAndSaid) {
  PrepareConfig c = config("byte");
  c.train = {dir_.file("ok.txt", "caf\xC3\xA9\n"), dir_.file("latin.txt", "caf\xE9 na\xEFve\n")};
  PrepareResult result = prepare(test_context(), c, {});
  EXPECT_EQ(result.invalid_bytes, 2u);
  EXPECT_THAT(result.first_invalid, HasSubstr("latin.txt, byte 3"));
  EXPECT_EQ(decoded("train"), "caf\xC3\xA9\ncaf\xE9 na\xEFve\n");
  EXPECT_EQ(read_json(dir_ / "set/meta.json")["invalid_utf8"]["bytes"], 2);
  c.invalid_utf8 = InvalidText::kReplace;
  result = prepare(test_context(), c, {});
  EXPECT_EQ(result.invalid_bytes, 2u);
  EXPECT_EQ(decoded("train"), "caf\xC3\xA9\ncaf\xEF\xBF\xBD na\xEF\xBF\xBDve\n");
  c.invalid_utf8 = InvalidText::kRefuse;
  EXPECT_THAT(error_of([&] { prepare(test_context(), c, {}); }), HasSubstr("latin.txt, byte 3: not UTF-8"));
  c.train = {dir_.file("x.jsonl", "{\"text\": \"\xE9\"}\n")};
  c.invalid_utf8 = InvalidText::kKeep;
  EXPECT_THAT(error_of([&] { prepare(test_context(), c, {}); }), HasSubstr("--invalid-utf8 replace"));
  c.invalid_utf8 = InvalidText::kReplace;
  prepare(test_context(), c, {});
  EXPECT_EQ(decoded("train"), "\xEF\xBF\xBD\n");
}

// A character is never cut in two, which would make invalid bytes of it.
TEST_F(PrepareTest, AMegabyteWithoutASpaceIsValid) {
  PrepareConfig c = config("byte");
  std::string text = "a";
  while (text.size() < (3u << 20)) text += "\xE6\xBC\xA2";
  c.train = {dir_.file("long.txt", text)};
  EXPECT_EQ(prepare(test_context(), c, {}).invalid_bytes, 0u);
  EXPECT_EQ(decoded("train"), text + "\n");
}

TEST_F(PrepareTest, IdsAreOfTheTokenizersVocabulary) {
  PrepareConfig c = config("byte");
  c.train = {dir_.file("a.txt", "one two")};
  prepare(test_context(), c, {});
  std::string bytes = read_text(dir_ / "set/train.tokens");
  const uint32_t huge = INT32_MAX;
  std::memcpy(bytes.data() + 56, &huge, sizeof huge);
  write_atomically(dir_ / "set/train.tokens", bytes);
  EXPECT_THAT(error_of([&] { TokenSet(dir_ / "set"); }),
              AllOf(HasSubstr("vocabulary of 2147483647"), HasSubstr("256 entries")));
}

TEST_F(PrepareTest, AModelOfAnotherVocabularyIsRefused) {
  PrepareConfig c = config("byte");
  c.train = {dir_.file("a.txt", "one two")};
  prepare(test_context(), c, {});
  const TokenSet set(dir_ / "set");
  const uint64_t hash = set.tokenizer().hash();
  const auto refusal = [&](int size, uint64_t tokenizer_hash) {
    return error_of([&] {
      require_same_tokenizer(
          set, {.name = "run", .size = size, .tokenizer_hash = tokenizer_hash, .tokenizer_file = "run/tokenizer.json"});
    });
  };
  EXPECT_EQ(refusal(256, hash), "");
  EXPECT_EQ(refusal(256, 0), "");
  EXPECT_THAT(refusal(256, hash + 1), HasSubstr("--tokenizer run/tokenizer.json"));
  EXPECT_THAT(refusal(255, 0), AllOf(HasSubstr("knows 255 tokens"), HasSubstr("has 256")));
}

}  // namespace
}  // namespace longshot
