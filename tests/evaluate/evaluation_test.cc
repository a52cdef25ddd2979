// Plans of evaluations, and what they return as records.
#include "evaluate/evaluation.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/context.h"
#include "base/error.h"
#include "evaluate/summary.h"
#include "evaluate/validation.h"
#include "formats/safetensors.h"
#include "kernels/peak.h"
#include "run/checkpoint.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

class EvaluationTest : public testing::Test {
 protected:
  EvaluationTest() : model_(small_model(), false) {
    write_token_set(dir_ / "data", 4000);
    tokens_ = std::make_unique<TokenSet>(dir_ / "data");
    model_.initialize(context_, 3);
  }
  const TokenFile& stream() const { return tokens_->split("valid"); }  // 1000 tokens
  EvaluationPlan plan(const EvaluationConfig& config, int64_t max_length = 100000) const {
    return plan_evaluations(config, {.train_length = 24, .max_length = max_length}, stream());
  }
  std::string complaint(const EvaluationConfig& config) const {
    try {
      plan(config);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  ScratchDir dir_;
  Context context_{1};
  Transformer model_;
  std::unique_ptr<TokenSet> tokens_;
};

TEST_F(EvaluationTest, EveryLengthScoresTheSameTokensInWholeWindows) {
  const EvaluationPlan p =
      plan({.lengths = {36, 24, 24, 48}, .modes = {WindowMode::kSliding, WindowMode::kNonoverlapping}});
  ASSERT_EQ(p.evaluations.size(), 6u);
  for (const Evaluation& e : p.evaluations) {
    EXPECT_EQ(e.tokens, 864) << "6 x 144, the largest multiple of 24, 36 and 48 in 1000";
    EXPECT_EQ(e.windows.stride, e.mode == WindowMode::kSliding ? e.windows.window / 4 : e.windows.window);
  }
  // No such number: the longest has whole windows.
  for (const Evaluation& e : plan({.lengths = {24, 97, 300}}).evaluations) EXPECT_EQ(e.tokens, 900);
  for (const Evaluation& e : plan({.lengths = {24, 97}, .scored = Scored::kAll}).evaluations) EXPECT_EQ(e.tokens, 1000);
  for (const Evaluation& e : plan({.lengths = {24, 48}, .max_tokens = 100}).evaluations) EXPECT_EQ(e.tokens, 96);
}

TEST_F(EvaluationTest, TheLadderIsTheDefault) {
  std::vector<int64_t> lengths;
  for (const Evaluation& e : plan({}).evaluations) lengths.push_back(e.windows.window);
  EXPECT_EQ(lengths, length_ladder(24));
  EXPECT_EQ(lengths, (std::vector<int64_t>{24, 48, 96, 192, 384}));
}

TEST_F(EvaluationTest, LengthsBeyondTheMethodAreNamed) {
  const EvaluationPlan p = plan({.lengths = {24, 48, 96}}, 48);
  EXPECT_EQ(p.evaluations.size(), 2u);
  EXPECT_EQ(p.undefined, std::vector<int64_t>{96});
}

TEST_F(EvaluationTest, WrongRequestsAreRefused) {
  EXPECT_THAT(complaint({.lengths = {24, 1001}}), HasSubstr("1001"));
  EXPECT_THAT(complaint({.lengths = {0}}), HasSubstr("positive"));
  EXPECT_THAT(complaint({.modes = {}}), HasSubstr("follow each other"));
  EXPECT_THAT(complaint({.stride = 8}), HasSubstr("sliding"));
  EXPECT_THAT(complaint({.modes = {WindowMode::kSliding}, .stride = -1}), HasSubstr("negative"));
  EXPECT_THAT(complaint({.max_tokens = -3}), HasSubstr("negative"));
}

TEST_F(EvaluationTest, RecordsSayWhoseNumberTheyAre) {
  const EvaluationPlan p = plan({.lengths = {48, 96}});
  ASSERT_EQ(p.evaluations.size(), 3u) << "and the training length, for the decomposition";
  const Evaluated e = evaluate(context_, {model_, "abc", 7}, stream(), p, {});
  ASSERT_EQ(e.records.size(), 2u);
  for (const EvalRecord& r : e.records) {
    EXPECT_EQ(r.weights, "abc");
    EXPECT_EQ(r.step, 7);
    EXPECT_EQ(r.data, hex(stream().data_hash()));
    EXPECT_EQ(r.tokens, 960);
    EXPECT_EQ(r.arithmetic, arithmetic(context_));
    EXPECT_NEAR(*r.perplexity, std::exp(*r.loss), 1e-9 * *r.perplexity);
  }
  EXPECT_EQ(e.losses.size(), 2u);
  ASSERT_EQ(e.decomposition.size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(e.decomposition[i].total, e.decomposition[i].curse_relief + e.decomposition[i].beyond, 1e-9);
  EXPECT_EQ(e.per_position.back().to, 96);
}

TEST_F(EvaluationTest, ALossThatIsNotFiniteLeavesNoHalfRecord) {
  for (float& v : model_.parameters().values()) v = std::numeric_limits<float>::quiet_NaN();
  const Evaluated e = evaluate(context_, {model_}, stream(), plan({.lengths = {24, 48}}), {});
  for (const EvalRecord& r : e.records) {
    EXPECT_FALSE(r.loss);
    EXPECT_FALSE(r.perplexity);
  }
  EXPECT_TRUE(e.decomposition.empty());
  const EvaluationLine line{
      .model = "m", .position = "alibi", .train_length = 24, .results = e.records, .per_position = e.per_position};
  EXPECT_NO_THROW(EvaluationLine::from_json(line.to_json(), "line"));
}

TEST(Summaries, BlocksAreEqualStretches) {
  std::vector<float> losses(130);
  for (size_t i = 0; i < losses.size(); ++i) losses[i] = static_cast<float>(i);
  const std::vector<double> blocks = block_means(losses);
  ASSERT_EQ(blocks.size(), 64u);
  EXPECT_EQ(blocks[0], 0.5) << "tokens 0 and 1";
  EXPECT_EQ(blocks[63], 128) << "the last three";
  EXPECT_EQ(block_means({1, 2, 4}), (std::vector<double>{1, 2, 4}));
  EXPECT_TRUE(block_means({1, std::numeric_limits<float>::infinity()}).empty());
}

TEST(Summaries, ErrorsOfPositionsAreOverWindows) {
  // Two windows of 3: the bin of position 0 has 1 and 3, mean 2, standard error 1.
  const std::vector<PositionLoss> bins = loss_by_position({1, 5, 5, 3, 5, 5}, 3);
  EXPECT_EQ(bins[0].loss, 2);
  EXPECT_EQ(bins[0].standard_error, 1);
  EXPECT_EQ(bins[1].standard_error, 0);
  EXPECT_FALSE(loss_by_position({1, 2, 3}, 3)[0].standard_error) << "one window";
}

TEST(Summaries, ErrorsOfTheDecompositionAreOverLongWindows) {
  // Windows of 2 and 4. The short ones cost 4 and 2; the long ones 2 in the first and 1 in the second window.
  const std::vector<float> shorter = {4, 2, 4, 2, 4, 2, 4, 2}, longer = {2, 2, 2, 2, 1, 1, 1, 1};
  const Decomposition d = split_gain({longer, 4}, {shorter, 2});
  EXPECT_DOUBLE_EQ(d.total, -1.5);
  EXPECT_DOUBLE_EQ(d.curse_relief, 0.5 * 3 + 0.5 * 2 - 3);
  EXPECT_DOUBLE_EQ(*d.total_error, 0.5) << "-1 and -2";
  EXPECT_DOUBLE_EQ(*d.curse_relief_error, 0);
  EXPECT_DOUBLE_EQ(*d.beyond_error, 0.5);
}

TEST_F(EvaluationTest, StopsWhenAsked) {
  EvaluationCallbacks callbacks;
  callbacks.should_stop = [] { return true; };
  const EvaluationPlan p = plan({.lengths = {24}, .batch_tokens = 24});
  EXPECT_FALSE(evaluate(context_, {model_}, stream(), p, callbacks).finished);
  EXPECT_EQ(validation_loss(context_, model_, {stream(), {24, 24}, 960}, callbacks.should_stop).has_value(), false);
  EXPECT_TRUE(validation_loss(context_, model_, {stream(), {24, 24}, 960}, [] { return false; }).has_value());
}

TEST_F(EvaluationTest, LossesOfEveryTokenCanBeWritten) {
  const Evaluated e = evaluate(context_, {model_}, stream(), plan({.lengths = {24, 48}}), {});
  write_losses(dir_ / "l.safetensors", stream(), e.losses);
  const Safetensors file(dir_ / "l.safetensors");
  std::vector<float> losses(960);
  file.read("nonoverlapping_48", losses);
  EXPECT_EQ(losses, e.losses[1].losses);
  EXPECT_EQ(file.at("place").shape, Shape{960});
  write_losses(dir_ / "l.csv", stream(), e.losses);
  const std::string text = read_text(dir_ / "l.csv");
  EXPECT_THAT(text, testing::StartsWith("place,id,nonoverlapping_24,nonoverlapping_48\n0,"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 961);
  EXPECT_THROW(write_losses(dir_ / "l.txt", stream(), e.losses), Error);

  int asked = 0;
  const Watch later{.should_stop = [&] { return ++asked > 1; }};
  EXPECT_THROW(write_losses(dir_ / "l.csv", stream(), e.losses, later), Stopped);
  EXPECT_EQ(read_text(dir_ / "l.csv"), text) << "what is there stays until the new one is whole";
  EXPECT_FALSE(fs::exists(dir_ / "l.csv.tmp"));
}

}  // namespace
}  // namespace longshot
