// What the early-token decomposition says of a text whose tokens repeat the one exactly G before them, asked of a model
// that has really learnt it.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "context.h"
#include "evaluate/protocol.h"
#include "evaluate/summary.h"
#include "train/support.h"

namespace longshot {
namespace {

constexpr size_t kGap = 12;

// x_t = x_{t-G} four times out of five, else drawn from eight letters.
std::string gapped_text(size_t bytes) {
  std::string text;
  for (size_t t = 0; t < bytes; ++t) {
    const uint64_t bits = random_bits(7, longshot::Stream::kTest, t);
    const bool copy = t >= kGap && bits % 5 != 0;
    text += copy ? text[t - kGap] : static_cast<char>('a' + (bits >> 32) % 8);
  }
  return text;
}

TEST(Decomposition, ContextBeyondLCountsOnlyWhereTheGapIsBeyondL) {
  ScratchDir dir;
  write_token_set(dir / "data", gapped_text(40000));
  const TokenSet tokens(dir / "data");
  ModelConfig config = small_model("t5");
  config.length = 48;
  Transformer model(config, true);
  model.initialize(test_context(), 1);
  TrainConfig train = small_training(400);
  train.batch_tokens = 480, train.micro_batch_tokens = 0, train.save_every = 0, train.log_every = 100;
  train.schedule.lr = 1e-2;
  RunWriter run{RunDir(dir / "run")};
  run.begin_at(0, 1);
  Trainer(test_context(), {model, tokens.split("train"), &tokens.tokenizer()}, train).train(&run, {});

  const auto losses = [&](int64_t window) {
    return score_stream(test_context(), model, {tokens.split("valid"), {window, window}, 9600}, {}).losses;
  };
  const std::vector<float> longest = losses(48);
  // Windows of 8 never hold the token 12 before: what 48 gains, it gains by context beyond 8.
  const std::vector<float> of_8 = losses(8);
  const Decomposition beyond = split_gain({longest, 48}, {of_8, 8});
  EXPECT_LT(beyond.beyond, -0.5);
  EXPECT_NEAR(beyond.curse_relief, 0, 0.05);
  // Windows of 24 hold it for half of their tokens: what 48 gains, it gains by fewer tokens without it.
  const std::vector<float> of_24 = losses(24);
  const Decomposition relief = split_gain({longest, 48}, {of_24, 24});
  EXPECT_LT(relief.curse_relief, -0.2);
  EXPECT_NEAR(relief.beyond, 0, 0.05);
}

}  // namespace
}  // namespace longshot
