// fairseq's data-bin in both layouts, and what can be wrong with it.
#include "data/data_bin.h"

#include <gmock/gmock.h>

#include <cstring>

#include "data/token_set.h"
#include "data/tokenizers.h"
#include "helpers.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;

template <class... T>
std::string bytes(T... values) {
  std::string out;
  (out.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return out;
}

std::vector<int32_t> read_all(const TokenFile& file) {
  std::vector<int32_t> ids(static_cast<size_t>(file.size()));
  file.read(0, ids);
  return ids;
}

class DataBin : public testing::Test {
 protected:
  void SetUp() override { dir_.file("dict.txt", "the 2\ncat 1\nsat 1\nmat 1\n"); }
  std::string open_error() const {
    return error_of([&] { TokenSet(dir_.path()); });
  }
  TemporaryDir dir_;
};

// Two lines, "the cat </s>" and "</s>", as 2-byte ids.
const std::string kMappedIdx =
    "MMIDIDX\0\0"s + bytes(uint64_t{1}, uint8_t{8}, uint64_t{2}, int32_t{3}, int32_t{1}, int64_t{0}, int64_t{6});
const std::string kMappedBin = bytes(uint16_t{4}, uint16_t{5}, uint16_t{2}, uint16_t{2});
const std::string kLegacyIdx =
    "TNTIDX\0\0"s + bytes(uint64_t{1}, uint64_t{4}, uint64_t{4}, uint64_t{2}, uint64_t{2}, int64_t{0}, int64_t{1},
                          int64_t{2}, int64_t{0}, int64_t{3}, int64_t{4}, int64_t{3}, int64_t{1});
const std::string kLegacyBin = bytes(int32_t{5}, int32_t{6}, int32_t{3}, int32_t{3});

TEST_F(DataBin, BothLayoutsGiveTheSameIds) {
  dir_.file("train.idx", kMappedIdx);
  dir_.file("train.bin", kMappedBin);
  dir_.file("old.idx", kLegacyIdx);
  dir_.file("old.bin", kLegacyBin);
  ASSERT_TRUE(is_token_set(dir_.path()));
  const TokenSet set(dir_.path());
  EXPECT_THAT(set.names(), ElementsAre("train", "old"));
  for (const char* name : {"train", "old"}) {
    const TokenFile& file = set.split(name);
    EXPECT_THAT(read_all(file), ElementsAre(4, 5, 2, 2)) << name;
    EXPECT_EQ(file.counts().words, 2u);
    EXPECT_EQ(file.start_id(), 2);
    EXPECT_EQ(file.vocab_size(), 8);
    EXPECT_THAT(file.documents(), ElementsAre(0));
  }
  EXPECT_EQ(set.tokenizer().decode(read_all(set.split("old"))), "the cat\n\n");
  TokenWriter writer(dir_ / "same.tokens", {.tokenizer_hash = 0, .vocab_size = 8, .start_id = 2});
  writer.append(std::vector<int32_t>{4, 5, 2, 2});
  writer.finish();
  const uint64_t hash = TokenFile(dir_ / "same.tokens").data_hash();
  EXPECT_EQ(set.split("train").data_hash(), hash);
  EXPECT_EQ(set.split("old").data_hash(), hash);
}

TEST_F(DataBin, EveryTypeCode) {
  const auto check = [&](uint8_t code, const std::string& bin, int64_t width) {
    dir_.file("train.idx", "MMIDIDX\0\0"s + bytes(uint64_t{1}, code, uint64_t{1}, int32_t{2}, int64_t{0}));
    dir_.file("train.bin", bin);
    EXPECT_THAT(read_all(TokenSet(dir_.path()).split("train")), ElementsAre(7, 2)) << int{code};
    EXPECT_EQ(TokenSet(dir_.path()).split("train").width(), width);
  };
  check(1, bytes(uint8_t{7}, uint8_t{2}), 1);
  check(2, bytes(int8_t{7}, int8_t{2}), 1);
  check(3, bytes(int16_t{7}, int16_t{2}), 2);
  check(4, bytes(int32_t{7}, int32_t{2}), 4);
  check(5, bytes(int64_t{7}, int64_t{2}), 8);
  check(8, bytes(uint16_t{7}, uint16_t{2}), 2);
  check(9, bytes(uint32_t{7}, uint32_t{2}), 4);
  check(10, bytes(uint64_t{7}, uint64_t{2}), 8);
}

std::string all_text(const TokenFile& ids, const Tokenizer& tokenizer) {
  const auto input = decoded_text(ids, tokenizer);
  std::string text, part(100'000, 0);
  while (const size_t n = input->read(part)) text.append(part, 0, n);
  return text;
}

// As 1-byte ids in lines of one.
std::pair<std::string, std::string> mapped(const std::vector<uint8_t>& ids) {
  std::string idx = "MMIDIDX\0\0"s + bytes(uint64_t{1}, uint8_t{1}, uint64_t{ids.size()});
  for (size_t i = 0; i < ids.size(); ++i) idx += bytes(int32_t{1});
  for (size_t i = 0; i < ids.size(); ++i) idx += bytes(static_cast<int64_t>(i));
  return {idx, {ids.begin(), ids.end()}};
}

TEST_F(DataBin, TextIsDecodedInPartsAsAtOnce) {
  std::vector<uint8_t> ids;
  for (int i = 0; i < 1000; ++i) ids.push_back(i % 64 == i / 64 ? 2 : static_cast<uint8_t>(4 + i % 4));
  const auto [idx, bin] = mapped(ids);
  dir_.file("train.idx", idx);
  dir_.file("train.bin", bin);
  const TokenSet set(dir_.path());
  EXPECT_EQ(all_text(set.split("train"), set.tokenizer()),
            set.tokenizer().decode(std::vector<int32_t>(ids.begin(), ids.end())));
}

TEST_F(DataBin, AFewLongWordsDoNotBecomeAHugeText) {
  dir_.file("dict.txt", std::string(1 << 16, 'x') + " 1\n");
  const auto [idx, bin] = mapped(std::vector<uint8_t>(2000, 4));
  dir_.file("train.idx", idx);
  dir_.file("train.bin", bin);
  const TokenSet set(dir_.path());
  EXPECT_THAT(error_of([&] { all_text(set.split("train"), set.tokenizer()); }), HasSubstr("ids stand for "));
}

TEST_F(DataBin, IdsOutsideTheDictionaryAreFound) {
  const auto read_error = [&](int64_t id) {
    dir_.file("train.idx", "MMIDIDX\0\0"s + bytes(uint64_t{1}, uint8_t{5}, uint64_t{1}, int32_t{1}, int64_t{0}));
    dir_.file("train.bin", bytes(id));
    return error_of([&] { read_all(TokenSet(dir_.path()).split("train")); });
  };
  EXPECT_EQ(read_error(7), "");
  EXPECT_THAT(read_error(8), HasSubstr("id 8"));
  EXPECT_THAT(read_error(-1), HasSubstr("id -1"));
  EXPECT_THAT(read_error(INT64_MIN), HasSubstr("train.bin"));
  EXPECT_THAT(read_error((int64_t{1} << 32) + 4), HasSubstr("id 4294967300"));
}

TEST_F(DataBin, DamageIsNamed) {
  for (const auto& [idx, bin] : {std::pair{kMappedIdx, kMappedBin}, {kLegacyIdx, kLegacyBin}}) {
    dir_.file("train.bin", bin);
    dir_.file("train.idx", idx);
    EXPECT_EQ(open_error(), "");
    for (size_t size = 0; size < idx.size(); ++size) {
      dir_.file("train.idx", idx.substr(0, size));
      EXPECT_THAT(open_error(), HasSubstr("train.idx")) << size;
    }
    // Every byte of the index set to all ones must be refused or harmless, never followed.
    for (size_t i = 0; i < idx.size(); ++i) {
      std::string bad = idx;
      bad[i] = '\xFF';
      dir_.file("train.idx", bad);
      error_of([&] { read_all(TokenSet(dir_.path()).split("train")); });
    }
    dir_.file("train.idx", idx);
    dir_.file("train.bin", bin.substr(1));
    EXPECT_THAT(open_error(), HasSubstr("train.bin"));
  }
}

TEST_F(DataBin, TheReferencesOwn) {
  const TokenSet set(fixture("data-bin"));
  EXPECT_THAT(set.names(), ElementsAre("train", "valid", "test"));
  EXPECT_EQ(set.split("train").size(), 1134);
  EXPECT_EQ(set.split("valid").size(), 189);
  EXPECT_EQ(read_all(set.split("test")), set.tokenizer().encode(read_text(fixture("text/test.txt"))));
}

}  // namespace
}  // namespace longshot
