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
    const Scores sliding = score_stream(test_context(), *model, {s.tokens(), {20, 1}, 60}, {});
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
    const Scores one = score_stream(test_context(), *model, {s.tokens(), {16, 8}, 300}, {.batch_tokens = 1});
    const Scores many = score_stream(test_context(), *model, {s.tokens(), {16, 8}, 300}, {.batch_tokens = 100});
    Context single(1);
    const Scores serial = score_stream(single, *model, {s.tokens(), {16, 8}, 300}, {.batch_tokens = 100});
    expect_near(one.losses, many.losses);
    expect_near(many.losses, serial.losses);
  }
}

// The text of Stream in documents that begin at these tokens: inside a window, at its edge, two in one window, one of a single token.
constexpr int64_t kDocuments[] = {0, 37, 50, 62, 63, 150, 231};

std::unique_ptr<TokenFile> documents(const Stream& s) {
  const TokenFile& plain = s.tokens();
  TokenWriter writer(s.dir / "documents.tokens", {.tokenizer_hash = s.set->tokenizer().hash(),
                                                  .vocab_size = s.set->tokenizer().vocab_size(),
                                                  .start_id = plain.start_id()});
  for (size_t d = 0; d < std::size(kDocuments); ++d) {
    const int64_t end = d + 1 < std::size(kDocuments) ? kDocuments[d + 1] : plain.size();
    std::vector<int32_t> ids(static_cast<size_t>(end - kDocuments[d]));
    plain.read(kDocuments[d], ids);
    writer.begin_document();
    writer.append(ids);
  }
  writer.add_text(300, 60);
  writer.finish();
  return std::make_unique<TokenFile>(s.dir / "documents.tokens");
}

// Target i of a window sees what its input's document has in the window, and its loss is that of a pass over these tokens alone.
TEST(Scores, DocumentMaskScoresDocumentsAlone) {
  const Stream s;
  const auto stream = documents(s);
  ASSERT_EQ(stream->documents().size(), std::size(kDocuments));
  for (const char* name : {"alibi", "rotary", "none"}) {
    SCOPED_TRACE(name);
    const auto model = byte_model(name);
    const Scores plain = score_stream(test_context(), *model, {*stream, {50, 50}, 300}, {});
    const Scores masked = score_stream(test_context(), *model, {*stream, {50, 50}, 300}, {.document_mask = true});
    int hidden = 0;
    for (int64_t i = 0; i < 300; ++i) {
      const int64_t window = i / 50 * 50;
      const int64_t document = *(std::ranges::upper_bound(kDocuments, std::max<int64_t>(i - 1, 0)) - 1);
      const int64_t first = document == 0 ? window : std::max(window, document + 1);  // target of the first input seen
      const int64_t count = i - first + 1;
      std::vector<int32_t> inputs(static_cast<size_t>(count)), targets(static_cast<size_t>(count));
      fill_row(*stream, first, count, inputs, targets);
      std::vector<float> losses(static_cast<size_t>(count));
      Inference alone(test_context(), *model, {.sequences = 1, .tokens = count});
      alone.score({.inputs = inputs, .length = count, .first_key = {}}, targets, 0, losses);
      const auto at = static_cast<size_t>(i);
      ASSERT_NEAR(masked.losses[at], losses.back(), 2e-5) << "token " << i;
      if (first == window) {
        ASSERT_NEAR(masked.losses[at], plain.losses[at], 2e-5) << "token " << i;
      }
      hidden += std::abs(masked.losses[at] - plain.losses[at]) > 1e-3;
    }
    EXPECT_GT(hidden, 50);  // what lies in other documents would have mattered
  }
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
    const Decomposition d = split_gain({longer, 100}, {shorter, length});
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
  for (const PositionLoss& b : loss_by_position(losses, 100)) {
    EXPECT_EQ(b.from, next);
    edges.insert(b.from);
    next = b.to;
    tokens += b.tokens;
    EXPECT_DOUBLE_EQ(b.loss.value(), 1.5);
  }
  EXPECT_EQ(next, 100);
  EXPECT_EQ(tokens, 730);
  for (const int64_t power : {1, 2, 4, 8, 16, 32, 64}) EXPECT_TRUE(edges.contains(power)) << power;
}

}  // namespace
}  // namespace longshot
