// Nothing of others is removed, nothing is lost, whatever happens on the way.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/records.h"
#include "context.h"
#include "data/prepare.h"
#include "data/text_input.h"
#include "data/token_set.h"
#include "helpers.h"
#include "renameat2.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class PrepareSafety : public testing::Test {
 protected:
  static std::map<std::string, std::string> contents(const fs::path& dir) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(dir)) {
      if (entry.is_regular_file()) files[entry.path().filename().string()] = read_text(entry.path());
    }
    return files;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(dir_.path())) found.push_back(entry.path().filename().string());
    std::ranges::sort(found);
    return found;
  }
  PrepareConfig config() const {
    PrepareConfig c;
    c.tokenizer = "byte";
    c.train = {dir_.file("a.txt", "some text\n")};
    c.out = (dir_ / "set").string();
    return c;
  }
  static std::string refusal(const PrepareConfig& c) {
    return error_of([&] { prepare(test_context(), c, {}); });
  }
  TemporaryDir dir_;
};

TEST_F(PrepareSafety, OverwriteRemovesATokenSetAndNothingElse) {
  PrepareConfig c = config();
  c.overwrite = true;
  prepare(test_context(), c, {});
  const auto once = contents(dir_ / "set");
  prepare(test_context(), c, {});
  EXPECT_EQ(contents(dir_ / "set"), once);
  EXPECT_THAT(names(), ElementsAre("a.txt", "set"));

  dir_.file("set/notes.md", "mine");
  EXPECT_THAT(refusal(c), AllOf(HasSubstr("notes.md"), HasSubstr("not replaced")));
  EXPECT_EQ(read_text(dir_ / "set/notes.md"), "mine");

  fs::remove(dir_ / "set/notes.md");
  for (const char* name :
       {"pipe-notes.txt", "pipe-", "train.tokens.tmp.my-notes", "mine.tokens", "meta.json.documents"}) {
    dir_.file(std::string("set/") + name, "mine");
    EXPECT_THAT(refusal(c), AllOf(HasSubstr(name), HasSubstr("not replaced"))) << name;
    EXPECT_TRUE(fs::remove(dir_ / "set" / name)) << "it stays";
  }

  // A directory of other things.
  c.out = (dir_ / "thesis").string();
  dir_.file("thesis/chapter.tex", "text");
  dir_.file("thesis/tokenizer.json", "{}");
  EXPECT_THAT(refusal(c), AllOf(HasSubstr("chapter.tex"), HasSubstr("tokenizer.json")));
  EXPECT_EQ(contents(dir_ / "thesis").size(), 2u);
}

TEST_F(PrepareSafety, OverwritesWhetherOrNotNamesCanBeExchanged) {
  PrepareConfig c = config();
  c.overwrite = true;
  for (const bool can : {true, false}) {
    c.train = {dir_.file("a.txt", "some text\n")};
    prepare(test_context(), c, {});
    c.train = {dir_.file("a.txt", "some other text\n")};
    can_exchange = can;
    prepare(test_context(), c, {});
    can_exchange = true;
    EXPECT_EQ(TokenSet(dir_ / "set").split("train").size(), 16);
    EXPECT_THAT(names(), ElementsAre("a.txt", "set"));
  }
}

TEST_F(PrepareSafety, TheInputIsNeverInsideWhatIsReplaced) {
  PrepareConfig c = config();
  prepare(test_context(), c, {});
  c.overwrite = true;
  c.train = {(dir_ / "set/meta.json").string()};
  EXPECT_THAT(refusal(c), HasSubstr("is an input and lies in"));
  EXPECT_TRUE(fs::exists(dir_ / "set/train.tokens"));
  c.train = config().train;
  c.tokenizer = (dir_ / "set/tokenizer.byte.json").string();
  EXPECT_THAT(refusal(c), HasSubstr("is an input and lies in"));
  EXPECT_TRUE(fs::exists(dir_ / "set/train.tokens"));
}

TEST_F(PrepareSafety, TheCurrentDirectoryIsNotReplaced) {
  PrepareConfig c = config();
  c.overwrite = true;
  const fs::path before = fs::current_path();
  make_directories(dir_ / "here/below");
  for (const char* out : {".", "..", "../../here", "/"}) {
    fs::current_path(dir_ / "here/below");
    c.out = out;
    EXPECT_THAT(refusal(c), HasSubstr("current directory or one above")) << out;
    fs::current_path(before);
  }
}

TEST_F(PrepareSafety, ADirectoryNamedPartialIsLeftAlone) {
  dir_.file("set.partial/thesis.txt", "mine");
  PrepareConfig c = config();
  for (const bool overwrite : {false, true}) {
    c.overwrite = overwrite;
    EXPECT_THAT(refusal(c), AllOf(HasSubstr("set.partial"), HasSubstr("thesis.txt")));
  }
  EXPECT_EQ(read_text(dir_ / "set.partial/thesis.txt"), "mine");
  fs::remove_all(dir_ / "set.partial");
  dir_.file("set.partial/job.json.tmp", "{");  // of a process killed at once
  EXPECT_EQ(refusal(c), "");
  fs::create_directory_symlink(dir_.path(), dir_ / "set.partial");
  EXPECT_THAT(refusal(c), HasSubstr("not a directory"));
}

TEST_F(PrepareSafety, ADataBinNeedsNoTextBesideIt) {
  dir_.file("bin/dict.txt", "the 2\ncat 1\n");
  const std::string idx("MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0", 38);
  for (const char* name : {"train", "valid", "test", "test1", "test2"}) {
    dir_.file(std::string("bin/") + name + ".idx", idx);
    dir_.file(std::string("bin/") + name + ".bin", std::string("\4\0\5\0\2\0", 6));
  }
  dir_.file("set.text/train.txt", "mine");
  PrepareConfig c = config();
  c.train = {};
  c.inputs = {(dir_ / "bin").string()};
  prepare(test_context(), c, {});
  EXPECT_EQ(read_text(dir_ / "set.text/train.txt"), "mine");
  const TokenSet set(dir_ / "set");
  EXPECT_THAT(set.names(), ElementsAre("train", "valid", "test", "test1", "test2"));
  std::vector<int32_t> ids(3);
  set.split("test2").read(0, ids);
  EXPECT_THAT(ids, ElementsAre(4, 5, 2));
  EXPECT_EQ(set.split("test2").counts().words, 2u);
}

TEST_F(PrepareSafety, TwoAtOnceAreRefused) {
  const PrepareConfig c = config();
  std::string second;
  prepare(test_context(), c,
          {.stop = [] { return false; },
           .progress = [&](const PrepareProgress&) { second = refusal(c); },
           .note = [](const std::string&) {}});
  EXPECT_THAT(second, HasSubstr("another process (pid"));
  EXPECT_THAT(names(), ElementsAre("a.txt", "set"));
}

// As kill -9 at every place that reports: nothing is cleaned up, the next call goes on.
TEST_F(PrepareSafety, KilledAnywhereTheSameBytesComeOut) {
  struct Killed {};
  Context one(1);
  std::string text;
  for (uint64_t i = 0; text.size() < (1u << 20); ++i)
    text += fmt::format("\n\n = Title {} = \n\n", i) + odd_text(i, 3000);
  PrepareConfig c = config();
  c.train = {};
  c.inputs = {dir_.file("a.txt", text), dir_.file("b.txt", text)};
  c.format = TextFormat::kWikiText;
  c.split = {0.8, 0.1, 0.1};
  c.split_by = SplitBy::kDocument;
  c.allow_binary = true;
  c.tokenizer = "bpe";
  c.vocab_size = 270;
  int reports = 0;
  prepare(one, c,
          {.stop = [] { return false; },
           .progress = [&](const PrepareProgress&) { ++reports; },
           .note = [](const std::string&) {}});
  const auto once = contents(dir_ / "set");
  ASSERT_GT(reports, 6);
  for (const bool overwrite : {false, true}) {
    c.overwrite = overwrite;
    for (int kill = reports - 1; kill >= 0; --kill) {
      if (!overwrite) fs::remove_all(dir_ / "set");
      int left = kill;
      EXPECT_THROW(prepare(one, c,
                           {.stop = [] { return false; },
                            .progress =
                                [&](const PrepareProgress&) {
                                  if (left-- == 0) throw Killed();
                                },
                            .note = [](const std::string&) {}}),
                   Killed);
      EXPECT_EQ(fs::exists(dir_ / "set"), overwrite);
      prepare(one, c, {});
      EXPECT_TRUE(contents(dir_ / "set") == once) << "killed at report " << kill;
    }
  }
  EXPECT_THAT(names(), ElementsAre("a.txt", "b.txt", "set"));
}

TEST_F(PrepareSafety, WorkOfOtherOptionsIsNotTakenUp) {
  PrepareConfig c = config();
  EXPECT_FALSE(
      prepare(
          test_context(), c,
          {.stop = [] { return true; }, .progress = [](const PrepareProgress&) {}, .note = [](const std::string&) {}})
          .finished);
  EXPECT_TRUE(fs::exists(dir_ / "set.partial"));
  c.tokenizer = "word";
  std::string note;
  prepare(test_context(), c,
          {.stop = [] { return false; },
           .progress = [](const PrepareProgress&) {},
           .note = [&](const std::string& text) { note += text; }});
  EXPECT_THAT(note, HasSubstr("other inputs or options"));
  EXPECT_THAT(names(), ElementsAre("a.txt", "set"));
}

TEST_F(PrepareSafety, ADamagedJobFileIsRefused) {
  PrepareConfig c = config();
  bool encoding = false;
  const auto stopped = [&] {
    fs::remove_all(dir_ / "set.partial");
    encoding = false;
    return prepare(test_context(), c,
                   {.stop = [&] { return encoding; },
                    .progress = [&](const PrepareProgress& p) { encoding = std::string(p.phase) == "encoding"; },
                    .note = [](const std::string&) {}});
  };
  const auto with = [&](const std::string& pointer, const Json& value) {
    EXPECT_FALSE(stopped().finished);
    Json job = read_json(dir_ / "set.partial/job.json");
    job[Json::json_pointer(pointer)] = value;
    write_json(dir_ / "set.partial/job.json", job);
    return refusal(c);
  };
  EXPECT_THAT(with("/place/input", 1000000000), HasSubstr("job.json, place: input is 1000000000"));
  EXPECT_THAT(with("/place/part", -5), HasSubstr("part is -5"));
  EXPECT_THAT(with("/place", "x"), HasSubstr("job.json"));
  EXPECT_THAT(with("/splits", 7), HasSubstr("job.json"));
  EXPECT_THAT(with("/splits/train/tokens", uint64_t{1} << 63), HasSubstr("too few"));
  EXPECT_THAT(with("/splits/train/tokens", -1), HasSubstr("'tokens' is not a number"));
  EXPECT_EQ(with("/unknown", 1), "");
}

TEST_F(PrepareSafety, MetaSaysTheSameAsTheFiles) {
  prepare(test_context(), config(), {});
  const Json good = read_json(dir_ / "set/meta.json");
  EXPECT_EQ(error_of([&] { TokenSet(dir_ / "set"); }), "");
  for (const char* key : {"tokens", "documents", "bytes", "words", "data_hash"}) {
    Json bad = good;
    bad["splits"]["train"][key] = 12345;
    write_json(dir_ / "set/meta.json", bad);
    EXPECT_THAT(error_of([&] { TokenSet(dir_ / "set"); }), AllOf(HasSubstr(key), HasSubstr("12345"))) << key;
  }
  fs::remove(dir_ / "set/meta.json");
  EXPECT_EQ(error_of([&] { TokenSet(dir_ / "set"); }), "");
}

TEST_F(PrepareSafety, NamesThatAreNotUtf8AreNoObstacle) {
  PrepareConfig c = config();
  c.train = {dir_.file("caf\xE9.txt", "text\n")};
  prepare(test_context(), c, {});
  EXPECT_THAT(read_json(dir_ / "set/meta.json")["files"][0].get<std::string>(), HasSubstr("caf\\xe9.txt"));
}

TEST_F(PrepareSafety, ALabyrinthOfLinksIsWalkedOnce) {
  for (int i = 0; i < 26; ++i) dir_.file(fmt::format("maze/{}/text.txt", i), "x");
  for (int i = 0; i < 26; ++i) {
    for (int j = 0; j < 26; ++j)
      fs::create_directory_symlink(dir_ / fmt::format("maze/{}", j), dir_ / fmt::format("maze/{}/to-{}", i, j));
  }
  fs::create_symlink(dir_ / "nowhere", dir_ / "maze/0/broken");
  PrepareConfig c = config();
  c.train = {(dir_ / "maze").string()};
  int asked = 0, while_walking = 0;
  const PrepareResult result = prepare(test_context(), c,
                                       {.stop = [&] { return ++asked < 0; },
                                        .progress =
                                            [&](const PrepareProgress&) {
                                              if (while_walking == 0) while_walking = asked;
                                            },
                                        .note = [](const std::string&) {}});
  EXPECT_EQ(result.splits[0].counts.documents, 26u);
  // And it can be stopped there.
  EXPECT_GE(while_walking, 26);
  c.out = (dir_ / "other").string();
  EXPECT_FALSE(
      prepare(
          test_context(), c,
          {.stop = [] { return true; }, .progress = [](const PrepareProgress&) {}, .note = [](const std::string&) {}})
          .finished);
}

TEST_F(PrepareSafety, TheSetIsNotItsOwnInput) {
  PrepareConfig c = config();
  dir_.file("corpus/a.txt", "text\n");
  c.train = {(dir_ / "corpus").string()};
  c.out = (dir_ / "corpus/set").string();
  prepare(test_context(), c, {});
  c.overwrite = true;
  EXPECT_EQ(prepare(test_context(), c, {}).splits[0].counts.bytes, 5u);
}

TEST_F(PrepareSafety, AFifoNobodyWritesCanBeStopped) {
  PrepareConfig c = config();
  const std::string fifo = (dir_ / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  c.train = {fifo};
  int asked = 0;
  EXPECT_FALSE(prepare(test_context(), c,
                       {.stop = [&] { return ++asked > 3; },
                        .progress = [](const PrepareProgress&) {},
                        .note = [](const std::string&) {}})
                   .finished);
  EXPECT_THAT(error_of([&] { open_text(fifo); }), HasSubstr("not a file"));
}

}  // namespace
}  // namespace longshot
