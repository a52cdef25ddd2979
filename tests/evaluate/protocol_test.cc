#include "evaluate/protocol.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/threads.h"
#include "context.h"
#include "data/batches.h"
#include "evaluate/summary.h"
#include "model/support.h"
#include "train/support.h"

namespace longshot {
namespace {

// The reference's blocks: S targets each, up to C tokens of context before them.
TEST(Windows, EveryTargetIsScoredOnceWithTheReferencesContext) {
  for (const int64_t window : {1, 4, 7, 16}) {
    for (int64_t stride = 1; stride <= window; ++stride) {
      for (const int64_t tokens : {1, 3, 4, 15, 16, 17, 50}) {
        SCOPED_TRACE(testing::Message() << "N " << window << " S " << stride << " tokens " << tokens);
        int64_t next = 0;
        for (const Window& w : plan_windows({window, stride}, tokens)) {
          ASSERT_LE(w.count, window);
          for (int64_t k = w.count - w.scored; k < w.count; ++k) {
            ASSERT_EQ(w.first + k, next);
            const int64_t block = next / stride * stride;
            const int64_t context = std::min(block, window - stride);  // what fairseq gives this block
            ASSERT_EQ(k, context + next - block);
            ++next;
          }
        }
        ASSERT_EQ(next, tokens);
      }
    }
  }
  EXPECT_THROW(plan_windows({4, 0}, 10), Error);
  EXPECT_THROW(plan_windows({4, 5}, 10), Error);
}

TEST(Windows, CountsOfTheReference) {
  EXPECT_EQ(plan_windows({512, 512}, 217646).size(), 426u);
  EXPECT_EQ(plan_windows({512, 512}, 217646).back().count, 46);
  EXPECT_EQ(plan_windows({3072, 3072}, 245569).size(), 80u);
  EXPECT_EQ(plan_windows({3072, 3072}, 245569).back().count, 2881);
}

struct Stream {
  Stream() {
    write_token_set(dir / "data", 1200);
    set = std::make_unique<TokenSet>(dir / "data");
  }
  const TokenFile& tokens() const { return set->split("valid"); }  // 300 tokens
  ScratchDir dir;
  std::unique_ptr<TokenSet> set;
};

std::unique_ptr<Transformer> byte_model(const std::string& position) {
  ModelConfig c = tiny_config(position);
  c.vocab = 256, c.length = 64;
  return tiny_model(c);
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-5) << "at " << i;
}

TEST(Scores, StrideOneEqualsScoringEachTokenAloneWithItsWindow) {
  Stream s;
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    const auto model = byte_model(name);
    const Scores sliding = score_stream(test_context(), *model, s.tokens(), {20, 1}, 60, {});
    for (int64_t i = 0; i < 60; ++i) {
      const int64_t count = std::min<int64_t>(i + 1, 20);
      std::vector<int32_t> inputs(static_cast<size_t>(count)), targets(static_cast<size_t>(count));
      fill_row(s.tokens(), i - count + 1, count, inputs, targets);
      Inference alone(test_context(), *model, {.sequences = 1, .tokens = count});
      std::vector<float> losses(static_cast<size_t>(count));
      alone.score({.inputs = inputs, .length = count, .first_key = {}}, targets, 0, losses);
      ASSERT_NEAR(sliding.losses[static_cast<size_t>(i)], losses.back(), 2e-5) << "token " << i;
    }
  }
}

TEST(Scores, BatchSizeAndThreadsChangeNothing) {
  Stream s;
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    const auto model = byte_model(name);
    const Scores one = score_stream(test_context(), *model, s.tokens(), {16, 8}, 300, {.batch_tokens = 1});
    const Scores many = score_stream(test_context(), *model, s.tokens(), {16, 8}, 300, {.batch_tokens = 100});
    Context single(1);
    const Scores serial = score_stream(single, *model, s.tokens(), {16, 8}, 300, {.batch_tokens = 100});
    expect_near(one.losses, many.losses);
    expect_near(many.losses, serial.losses);
  }
}

TEST(Scores, DocumentMaskScoresDocumentsAlone) {
  Stream s;
  const auto model = byte_model("alibi");
  const Scores plain = score_stream(test_context(), *model, s.tokens(), {50, 50}, 300, {});
  const Scores masked = score_stream(test_context(), *model, s.tokens(), {50, 50}, 300, {.document_mask = true});
  expect_near(plain.losses, masked.losses);  // one document: nothing to hide
}

TEST(Summary, TheTwoPartsOfAGainAddUpToTheMeasuredDifference) {
  const auto noise = [](int64_t stream, double around) {
    std::vector<float> losses;
    for (uint64_t i = 0; i < 500; ++i) {
      losses.push_back(static_cast<float>(normal(1, longshot::Stream::kTest, stream, i) + around));
    }
    return losses;
  };
  const std::vector<float> longer = noise(4, 3), shorter = noise(5, 3.5);
  double difference = 0;
  for (size_t i = 0; i < 500; ++i) difference += (longer[i] - shorter[i]) / 500.0;
  for (const int64_t length : {10, 33, 99}) {
    const GainSplit d = split_gain({longer, 100}, {shorter, length});
    EXPECT_NEAR(d.total, difference, 1e-6);
    EXPECT_NEAR(d.total, d.curse_relief + d.beyond, 1e-9);
  }
  EXPECT_THROW(split_gain({longer, 100}, {shorter, 100}), Error);
  EXPECT_THROW(split_gain({longer, 100}, {{}, 10}), Error);
}

TEST(Summary, BinsCoverEveryPositionOnce) {
  std::vector<float> losses(730, 1.5f);
  int64_t next = 0, tokens = 0;
  std::set<int64_t> edges;
  for (const PositionBin& b : loss_by_position(losses, 100)) {
    EXPECT_EQ(b.from, next);
    edges.insert(b.from);
    next = b.to;
    tokens += b.tokens;
    EXPECT_DOUBLE_EQ(b.loss, 1.5);
  }
  EXPECT_EQ(next, 100);
  EXPECT_EQ(tokens, 730);
  for (const int64_t power : {1, 2, 4, 8, 16, 32, 64}) EXPECT_TRUE(edges.contains(power)) << power;
}

}  // namespace
}  // namespace longshot
