#include "data/token_file.h"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "helpers.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> read_all(const TokenFile& file) {
  std::vector<int32_t> ids(static_cast<size_t>(file.size()));
  file.read(0, ids);
  return ids;
}

class TokenFileTest : public testing::Test {
 protected:
  fs::path path() const { return dir_ / "x.tokens"; }
  void write(int vocab_size, const std::vector<std::vector<int32_t>>& documents) const {
    TokenWriter writer(path(), {.tokenizer_hash = 42, .vocab_size = vocab_size, .start_id = 1});
    for (const auto& ids : documents) {
      writer.begin_document();
      writer.append(ids);
    }
    writer.add_text(100, 20);
    writer.finish();
  }
  std::string load_error(const std::string& bytes) const {
    write_atomically(dir_ / "bad.tokens", bytes);
    return error_of([&] { TokenFile(dir_ / "bad.tokens"); });
  }
  TemporaryDir dir_;
};

TEST_F(TokenFileTest, RoundTripInTwoAndFourBytes) {
  for (const int vocab_size : {65536, 65537}) {
    write(vocab_size, {{0, 1, 2}, {}, {65535, 7}});
    const TokenFile file(path());
    EXPECT_EQ(file.width(), vocab_size == 65536 ? 2 : 4);
    EXPECT_THAT(read_all(file), ElementsAre(0, 1, 2, 65535, 7));
    EXPECT_THAT(file.documents(), ElementsAre(0, 3, 3));
    EXPECT_EQ(file.counts().bytes, 100u);
    EXPECT_EQ(file.counts().words, 20u);
    EXPECT_EQ(file.tokenizer_hash(), 42u);
    EXPECT_EQ(file.start_id(), 1);
    EXPECT_EQ(file.vocab_size(), vocab_size);
  }
}

TEST_F(TokenFileTest, AnIdIsNeverSilentlyCut) {
  TokenWriter writer(path(), {.tokenizer_hash = 0, .vocab_size = 100, .start_id = 0});
  EXPECT_THAT(error_of([&] {
                writer.append(std::vector<int32_t>{5, 100});
              }),
              HasSubstr("id 100 is outside the vocabulary of 100"));
  EXPECT_THAT(error_of([&] { writer.append(std::vector<int32_t>{-1}); }), HasSubstr("id -1"));
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(TokenFileTest, UnfinishedFilesHaveNoFinalName) {
  { TokenWriter writer(path(), {.tokenizer_hash = 0, .vocab_size = 100, .start_id = 0}); }
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(TokenFileTest, WorkIsTakenUpAtTheCheckpoint) {
  std::vector<int32_t> ids(1000);
  std::iota(ids.begin(), ids.end(), 0);
  write(1000, {ids, ids});
  const std::string whole = read_text(path());
  const TokenWriter::Meta meta{.tokenizer_hash = 42, .vocab_size = 1000, .start_id = 1};
  TokenWriter::Checkpoint saved;
  {
    TokenWriter writer(path(), meta);
    writer.begin_document();
    writer.append(ids);
    writer.add_text(100, 20);
    saved = writer.checkpoint();
    writer.begin_document();
    writer.append(std::vector<int32_t>{1, 2, 3});  // lost
    writer.checkpoint();
  }
  TokenWriter writer(path(), meta, saved);
  writer.begin_document();
  writer.append(ids);
  writer.finish();
  EXPECT_EQ(read_text(path()), whole);

  saved.counts.tokens = uint64_t{1} << 63;  // times two is nothing
  { TokenWriter broken_off(path(), meta); }
  EXPECT_THAT(error_of([&] { TokenWriter(path(), meta, saved); }), HasSubstr("too few"));
}

TEST_F(TokenFileTest, TheDataHashIsOfIdsAndDocuments) {
  write(300, {{1, 2, 3}, {4, 5}});
  const std::string bytes = read_text(path());
  const TokenFile file(path());
  const uint64_t hash = file.data_hash();
  // Bit by bit, of 01 00 02 00 .. 05 00 and two 8-byte numbers, 0 and 3: reflected polynomial c96c5795d7870f42.
  EXPECT_EQ(hash, 0x638b94de73ac2a96u);
  EXPECT_EQ(file.computed_hash(), hash);

  // Version 1 had no room for it.
  std::string old = bytes.substr(0, 64) + bytes.substr(72);
  old[8] = 1;
  write_atomically(dir_ / "old.tokens", old);
  const TokenFile before(dir_ / "old.tokens");
  EXPECT_THAT(read_all(before), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(before.documents(), ElementsAre(0, 3));
  EXPECT_EQ(before.data_hash(), hash);

  write(300, {{1, 2, 3}, {4, 6}});
  EXPECT_NE(TokenFile(path()).data_hash(), hash);
  write(300, {{1, 2}, {3, 4, 5}});
  EXPECT_NE(TokenFile(path()).data_hash(), hash);
}

// Every field of the header, one at a time, set to what cannot be; and every length.
TEST_F(TokenFileTest, HostileHeadersAreRefused) {
  write(300, {{1, 2, 3}, {4, 5}});
  const std::string good = read_text(path());
  const auto with = [&](size_t offset, uint64_t value, size_t bytes) {
    std::string bad = good;
    std::memcpy(bad.data() + offset, &value, bytes);
    return load_error(bad);
  };
  EXPECT_EQ(load_error(good), "");
  EXPECT_THAT(with(0, 'X', 1), HasSubstr("not a token file"));
  EXPECT_THAT(with(8, 3, 4), HasSubstr("version 3"));
  EXPECT_THAT(with(12, 3, 4), HasSubstr("width 3"));
  EXPECT_THAT(with(16, 9, 8), HasSubstr("interrupted"));
  EXPECT_THAT(with(16, UINT64_MAX, 8), HasSubstr("interrupted"));
  EXPECT_THAT(with(24, UINT64_MAX / 8, 8), HasSubstr("interrupted"));
  EXPECT_THAT(with(56, 0, 4), HasSubstr("vocabulary size 0"));
  EXPECT_THAT(with(56, UINT32_MAX, 4), HasSubstr("not possible"));
  EXPECT_THAT(with(60, 300, 4), HasSubstr("start id 300"));
  EXPECT_THAT(with(72 + 16, 1, 8), HasSubstr("document 0"));
  EXPECT_THAT(with(72 + 24, 6, 8), HasSubstr("behind the last"));
  for (size_t size = 0; size < good.size(); ++size) EXPECT_NE(load_error(good.substr(0, size)), "") << size;
  EXPECT_NE(load_error(good + "x"), "");

  // An id beyond the vocabulary is found when it is read.
  std::string bad = good;
  bad[72] = bad[73] = '\xFF';
  write_atomically(path(), bad);
  const TokenFile file(path());
  EXPECT_THAT(error_of([&] { read_all(file); }), HasSubstr("id 65535"));
}

}  // namespace
}  // namespace longshot
