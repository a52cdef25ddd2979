// One window over several ranks: the bits of one process, and a halo of bounded length.
#include "evaluate/stretches.h"

#include <gmock/gmock.h>

#include "data/token_set.h"
#include "dist/ranks.h"
#include "evaluate/evaluation.h"
#include "model/support.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::Each;
using testing::SizeIs;

constexpr int64_t kChunk = Inference::kChunkTokens;

// 20,000 tokens, in documents whose lengths double.
class Stretches : public testing::Test {
 protected:
  Stretches() {
    write_token_set(dir_ / "data", 80000);
    set_ = std::make_unique<TokenSet>(dir_ / "data");
    const TokenFile& plain = set_->split("valid");
    std::vector<int32_t> ids(20000);
    plain.read(0, ids);
    TokenWriter writer(dir_ / "documents.tokens", {.tokenizer_hash = set_->tokenizer().hash(),
                                                   .vocab_size = set_->tokenizer().vocab_size(),
                                                   .start_id = plain.start_id()});
    for (size_t begin = 0, length = 100; begin < ids.size(); begin += length, length *= 2) {
      writer.begin_document();
      writer.append(std::span<const int32_t>(ids).subspan(begin, std::min(length, ids.size() - begin)));
    }
    writer.finish();
    stream_ = std::make_unique<TokenFile>(dir_ / "documents.tokens");
  }
  static ModelConfig config(const std::string& position, const std::string& slopes = "") {
    ModelConfig c = tiny_config(position);
    c.dim = 16, c.heads = 2, c.ffn = 16, c.vocab = 256, c.length = 32;
    if (!slopes.empty()) c.set("alibi-slopes", slopes);
    return c;
  }
  struct Question {
    ModelConfig model;
    WindowShape windows;
    int64_t tokens = 0;
    int ranks_per_window = 0;
    double epsilon = 0x1p-24;
    Precision precision = Precision::kF32;
    bool document_mask = false;
    std::function<bool()> should_stop = [] { return false; };
  };
  Scores scores(const Question& q, Communicator* world = nullptr) const {
    Context context(1);
    context.set_precision(q.precision);
    const auto model = tiny_model(q.model);
    model->set_attention_epsilon(q.epsilon);
    ScoreOptions options{.document_mask = q.document_mask, .world = world};
    if (world) options.ranks_per_window = q.ranks_per_window;
    options.should_stop = q.should_stop;
    return score_stream(context, *model, {*stream_, q.windows, q.tokens}, options);
  }
  // Returns what the ranks exchanged.
  HaloCount expect_bits_of_one(const Question& q, int ranks) const { return expect_bits_of(scores(q), q, ranks); }
  HaloCount expect_bits_of(const Scores& one, const Question& q, int ranks) const {
    HaloCount halo;
    EXPECT_THAT(on_ranks(ranks,
                         [&](Communicator& world) {
                           const Scores shared = scores(q, &world);
                           EXPECT_TRUE(shared.finished);
                           EXPECT_EQ(shared.tiles.seen, one.tiles.seen);
                           EXPECT_EQ(shared.tiles.all, one.tiles.all);
                           if (!world.is_root()) return;
                           EXPECT_TRUE(shared.losses == one.losses);
                           halo = shared.halo;
                         }),
                Each(""));
    return halo;
  }
  static Question window(const ModelConfig& model, int64_t tokens) {
    return {.model = model, .windows = {tokens, tokens}, .tokens = tokens};
  }

 private:
  ScratchDir dir_;
  std::unique_ptr<TokenSet> set_;
  std::unique_ptr<TokenFile> stream_;
};

TEST(StretchesOf, AreWholeChunksInOrder) {
  for (const int64_t tokens : {int64_t{1}, kChunk, kChunk + 1, 10 * kChunk - 5, int64_t{4'000'000}}) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      SCOPED_TRACE(testing::Message() << tokens << " on " << ranks);
      const auto stretches = stretches_of(tokens, ranks);
      ASSERT_THAT(stretches, SizeIs(static_cast<size_t>(ranks)));
      int64_t end = 0;
      for (const KeyRange& s : stretches) {
        EXPECT_EQ(s.first, end);
        EXPECT_TRUE(s.empty() || s.first % kChunk == 0);
        EXPECT_LE(s.last - s.first, (tokens / kChunk / ranks + 1) * kChunk);
        end = s.last;
      }
      EXPECT_EQ(end, tokens);
      EXPECT_FALSE(stretches[0].empty());
    }
  }
}

TEST_F(Stretches, GiveTheBitsOfOneProcess) {
  for (const char* slopes : {"0.5,0.004", "2,0.05", ""}) {
    const Question q = window(config("alibi", slopes), 19777);
    const Scores one = scores(q);
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << slopes << " on " << ranks);
      const HaloCount halo = expect_bits_of(one, q, ranks);
      EXPECT_EQ(halo.ranks, ranks);
      EXPECT_GT(halo.keys, 0);
    }
  }
}

TEST_F(Stretches, OfAWindowOfFewChunksLeaveRanksIdle) {
  const ModelConfig model = config("alibi", "0.5,0.01");
  EXPECT_EQ(expect_bits_of_one(window(model, kChunk + 1), 4).ranks, 4);
  Question whole = window(model, kChunk);
  EXPECT_EQ(expect_bits_of_one(whole, 4).ranks, 1);  // not worth it
  whole.ranks_per_window = 4;
  EXPECT_EQ(expect_bits_of_one(whole, 4).keys, 0);
}

TEST_F(Stretches, WorkForEveryFormOfAttention) {
  Question q = window(config("alibi", "0.5,0.01"), 3 * kChunk - 100);
  q.document_mask = true;
  expect_bits_of_one(q, 3);
  q.document_mask = false, q.precision = Precision::kBf16;
  expect_bits_of_one(q, 3);
  q.precision = Precision::kF32, q.model.kv_heads = 1;
  expect_bits_of_one(q, 3);
}

// Of methods whose bias has no bound, and where nothing may be left out, all earlier keys travel.
TEST_F(Stretches, WithoutABoundGetAllEarlierKeys) {
  const int64_t tokens = 2 * kChunk + 300;
  for (const char* name : {"rotary", "t5"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(expect_bits_of_one(window(config(name), tokens), 3).keys, 2 * kChunk - kKeyTile);
  }
  Question exact = window(config("alibi"), tokens);
  exact.epsilon = 0;
  EXPECT_EQ(expect_bits_of_one(exact, 3).keys, 2 * kChunk - kKeyTile);
}

// Of the second window only the last tokens are scored, so that most ranks have none of them.
TEST_F(Stretches, OfSlidingWindows) {
  for (const int per_window : {2, 4}) {
    Question q{.model = config("alibi", "0.5,0.02"),
               .windows = {2 * kChunk, 1000},
               .tokens = 2 * kChunk + 500,
               .ranks_per_window = per_window};
    EXPECT_EQ(expect_bits_of_one(q, 4).ranks, per_window);
    q.model.set("adaptive-cutoffs", "100,200");
    expect_bits_of_one(q, 4);
  }
}

TEST_F(Stretches, GetKeysThatDoNotGrowWithTheWindow) {
  const ModelConfig model = config("alibi", "0.25,0.05");
  const HaloCount half = expect_bits_of_one(window(model, 10000), 2),
                  whole = expect_bits_of_one(window(model, 20000), 2);
  EXPECT_LE(whole.keys, 1024);
  EXPECT_LE(half.keys, 1024);
  EXPECT_LT(whole.bytes, 3 * half.bytes / 2);
}

TEST_F(Stretches, StopOnAllRanksWhenOneIsStopped) {
  for (const int looks : {0, 3, 6, 9}) {
    EXPECT_THAT(on_ranks(3,
                         [&](Communicator& world) {
                           Question q = window(config("alibi", "0.5,0.004"), 19777);
                           int looked = 0;
                           q.should_stop = [&] { return world.rank() == 1 && looked++ == looks; };
                           const Scores shared = scores(q, &world);
                           EXPECT_FALSE(shared.finished);
                           EXPECT_THAT(shared.losses, SizeIs(0));
                         }),
                Each(""));
  }
}

}  // namespace
}  // namespace longshot
