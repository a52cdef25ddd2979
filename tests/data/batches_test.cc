// Properties of the training stream, for odd lengths and tiny sets.
#include "data/batches.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "helpers.h"

namespace longshot {
namespace {

constexpr int kVocabulary = 70000;  // 4-byte ids
constexpr int32_t kStart = 9;

// Token i is a function of i, so that a batch tells where it came from.
int32_t token_at(int64_t i) { return static_cast<int32_t>(10 + i); }

class BatchesTest : public testing::Test {
 protected:
  TokenFile tokens(int64_t count, std::vector<int64_t> documents = {0}) {
    const fs::path path = dir_ / fmt::format("{}.tokens", files_++);
    TokenWriter writer(path, {.tokenizer_hash = 1, .vocab_size = kVocabulary, .start_id = kStart});
    for (size_t d = 0; d < documents.size(); ++d) {
      writer.begin_document();
      const int64_t end = d + 1 < documents.size() ? documents[d + 1] : count;
      for (int64_t i = documents[d]; i < end; ++i) {
        const int32_t id = token_at(i);
        writer.append({&id, 1});
      }
    }
    writer.finish();
    return TokenFile(path);
  }

 private:
  TemporaryDir dir_;
  int files_ = 0;
};

TEST_F(BatchesTest, EveryTokenIsATargetOncePerEpochAndInputsAreTheTokenBefore) {
  for (const int64_t count : {1, 2, 3, 7, 16, 17, 31, 100}) {
    const TokenFile file = tokens(count);
    for (const int64_t length : {1, 2, 5, 16, 33}) {
      for (const int64_t sequences : {1, 3}) {
        const Batches batches(file, {.length = length, .sequences = sequences, .seed = 5});
        const int64_t blocks = (count + length - 1) / length;
        ASSERT_EQ(batches.blocks(), blocks);
        // Whole epochs end on a batch boundary after `sequences` of them.
        std::map<int32_t, int> seen;
        Batch batch;
        for (int64_t step = 0; step < blocks; ++step) {
          batches.fill(step, batch);
          ASSERT_EQ(batch.inputs.size(), static_cast<size_t>(length * sequences));
          for (size_t i = 0; i < batch.targets.size(); ++i) {
            if (batch.targets[i] == kNoTarget) continue;
            ++seen[batch.targets[i]];
            const int64_t place = batch.targets[i] - 10;
            ASSERT_EQ(batch.inputs[i], place == 0 ? kStart : token_at(place - 1));
          }
        }
        ASSERT_EQ(seen.size(), static_cast<size_t>(count)) << count << " tokens, length " << length;
        for (const auto& [id, times] : seen) ASSERT_EQ(times, sequences) << id;
      }
    }
  }
}

TEST_F(BatchesTest, PaddingStandsOnlyBehindTheLastBlock) {
  const TokenFile file = tokens(10);
  const Batches batches(file, {.length = 4, .sequences = 3, .seed = 1});
  Batch batch;
  batches.fill(0, batch);
  EXPECT_EQ(batch.target_count(), 10);
  for (int64_t row = 0; row < 3; ++row) {
    const auto first = batch.targets.begin() + row * 4;
    EXPECT_TRUE(std::is_partitioned(first, first + 4, [](int32_t t) { return t != kNoTarget; }));
  }
  for (const int32_t id : batch.inputs) EXPECT_TRUE(id >= 0 && id < kVocabulary);
}

TEST_F(BatchesTest, OrderIsAFunctionOfSeedAndEpoch) {
  const TokenFile file = tokens(64);
  const auto order = [&](uint64_t seed, int64_t epoch) {
    const Batches batches(file, {.length = 2, .sequences = 1, .seed = seed});
    std::vector<int32_t> firsts;
    Batch batch;
    for (int64_t i = 0; i < 32; ++i) {
      batches.fill(epoch * 32 + i, batch);
      firsts.push_back(batch.targets[0]);
    }
    return firsts;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_FALSE(std::ranges::is_sorted(order(1, 0)));
}

// Resuming costs nothing: a step asked for alone equals the same step reached one by one.
TEST_F(BatchesTest, AnyStepCanBeAskedForDirectly) {
  const TokenFile file = tokens(101);
  const Batches batches(file, {.length = 7, .sequences = 4, .seed = 3});
  Batch walked, direct;
  for (int64_t step = 0; step < 40; ++step) {
    batches.fill(step, walked);
    const Batches fresh(file, {.length = 7, .sequences = 4, .seed = 3});
    fresh.fill(step, direct);
    ASSERT_EQ(walked.inputs, direct.inputs);
    ASSERT_EQ(walked.targets, direct.targets);
  }
}

TEST_F(BatchesTest, DocumentStartsAreTheLastStartAtOrBeforeTheInput) {
  for (const std::vector<int64_t>& documents :
       {std::vector<int64_t>{0, 3, 4, 11, 20}, {0, 0, 0, 3, 11, 11, 20, 23}, {0, 0}}) {
    const TokenFile file = tokens(23, documents);
    const Batches batches(file, {.length = 5, .sequences = 1, .seed = 2, .document_mask = true});
    Batch batch;
    for (int64_t step = 0; step < batches.blocks(); ++step) {
      batches.fill(step, batch);
      const int64_t first = batch.targets[0] - 10;
      for (int64_t t = 0; t < 5; ++t) {
        if (batch.targets[static_cast<size_t>(t)] == kNoTarget) continue;
        const int64_t input = std::max<int64_t>(first + t - 1, 0);
        int64_t start = *(std::upper_bound(documents.begin(), documents.end(), input) - 1);
        if (start == 0) start = -1;  // the start id in front of the stream belongs to the first document
        const int32_t got = batch.doc_start[static_cast<size_t>(t)];
        EXPECT_EQ(got, std::max<int64_t>(start - (first - 1), 0)) << first << " + " << t;
        EXPECT_LE(got, t) << "a token sees itself";
      }
    }
  }
}

TEST_F(BatchesTest, EmptySetsAndLengthsAreRefused) {
  const TokenFile none = tokens(0);
  EXPECT_THAT(error_of([&] { Batches(none, {.length = 4, .sequences = 1}); }), testing::HasSubstr("no tokens"));
  const TokenFile some = tokens(4);
  EXPECT_THAT(error_of([&] { Batches(some, {.length = 0, .sequences = 1}); }), testing::HasSubstr("length (0)"));
}

}  // namespace
}  // namespace longshot
