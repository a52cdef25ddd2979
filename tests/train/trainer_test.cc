#include "train/trainer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "train/support.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Trainer, ResumedEqualsUninterruptedBitForBit) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  for (const PositionMethod* method : position_methods()) {
    for (const auto& [optimizer, kind] : kOptimizers) {
      if (method->name != "alibi" && kind != OptimizerKind::kAdamW) continue;
      SCOPED_TRACE(method->name + " " + optimizer);
      TrainRequest request = small_request(dir / "data", dir / (method->name + optimizer + "-whole"), 9);
      request.model = small_model(method->name);
      request.model.dropout = 0.1, request.model.attention_dropout = 0.1;
      request.train.optimizer.optimizer = kind;
      const TrainedRun whole = trained(request);
      request.out = (dir / (method->name + optimizer + "-parts")).string();
      const TrainedRun first = trained(request, 4);
      EXPECT_FALSE(first.result.finished);
      trained(request, 7);
      const TrainedRun last = trained(request);
      EXPECT_TRUE(last.result.finished);
      EXPECT_EQ(whole.weights, last.weights);
      EXPECT_EQ(whole.result.loss, last.result.loss);
    }
  }
}

TEST(Trainer, MicroBatchesChangeNothingBeyondRounding) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest one = small_request(dir / "data", dir / "one", 4), many = small_request(dir / "data", dir / "many", 4);
  one.train.micro_batch_tokens = 0, many.train.micro_batch_tokens = 24 * 2;  // 5 sequences as 2 + 2 + 1
  const TrainedRun a = trained(one), b = trained(many);
  for (size_t i = 0; i < a.weights.size(); ++i) ASSERT_NEAR(a.weights[i], b.weights[i], 2e-4);
  EXPECT_NEAR(*a.result.loss, *b.result.loss, 1e-4);
}

std::vector<int64_t> steps_of(const std::vector<MetricsRecord>& curve) {
  std::vector<int64_t> steps;
  for (const MetricsRecord& r : curve) steps.push_back(r.step);
  return steps;
}

TEST(Trainer, MetricsOfAResumedRunAreThoseOfTheWhole) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  const TrainRequest request = small_request(dir / "data", dir / "run", 9);
  trained(request, 5);
  // What was logged after the last checkpoint is logged again, once; a line cut short by a kill does no harm.
  const RunDir run(dir / "run");
  append_record(run.metrics(), {{"step", 6}, {"loss", 1.0}});
  std::ofstream(run.metrics(), std::ios::app) << "{\"step\":7,\"lo";
  trained(request);
  EXPECT_THAT(steps_of(read_metrics(run)), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(read_records(run.metrics()).size(), 9u);
}

TEST(Trainer, ARunKilledBeforeItsFirstCheckpointBeginsAnew) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 5);
  request.train.save_every = 0;
  const RunDir run(dir / "run");
  trained(request);
  fs::remove_all(run.checkpoints());  // as a kill at step 5 would have left it
  trained(request);
  EXPECT_THAT(steps_of(read_metrics(run)), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(read_records(run.metrics()).size(), 5u);
}

// Validation losses as listed, then 9.
TrainEvents validating(std::vector<double> losses) {
  TrainEvents events;
  events.validate = [losses, at = size_t{0}](Transformer&, const TokenFile&, int64_t,
                                             int64_t) mutable -> std::optional<double> {
    return at < losses.size() ? losses[at++] : 9.0;
  };
  return events;
}

TEST(Trainer, KeepsTheLastCheckpointsAndTheBest) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 12);
  request.train.save_every = 2, request.train.eval_every = 2, request.train.keep = 2;
  train_run(test_context(), request, validating({2, 1, 2, 2, 2, 2}));  // step 4 is the best
  EXPECT_THAT(checkpoint_steps(RunDir(dir / "run")), ElementsAre(4, 10, 12));
  EXPECT_EQ(find_checkpoint(dir / "run").filename(), "step-00000004");
}

TEST(Trainer, SavesByTime) {
  EXPECT_EQ(TrainConfig().save_minutes, 10) << "unless told otherwise";
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 6);
  request.train.save_every = 0, request.train.keep = 100;
  request.train.save_minutes = 1e-9;
  trained(request);
  EXPECT_THAT(checkpoint_steps(RunDir(dir / "run")), ElementsAre(1, 2, 3, 4, 5, 6));
  request.out = (dir / "never").string(), request.train.save_minutes = 0;
  const TrainedRun never = trained(request);
  EXPECT_THAT(checkpoint_steps(RunDir(dir / "never")), ElementsAre(6));
  EXPECT_EQ(never.weights, trained(small_request(dir / "data", dir / "run", 6)).weights);
}

TEST(Trainer, OutOfTimeIsTheEndHoweverOftenItIsResumed) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 100000);
  request.train.max_seconds = 0.05;
  const TrainedRun first = trained(request);
  EXPECT_TRUE(first.result.finished);
  const TrainedRun again = trained(request);
  EXPECT_TRUE(again.result.finished);
  EXPECT_EQ(again.result.updates, 0);
  EXPECT_EQ(again.result.step, first.result.step);
  request.train.max_seconds *= 3;
  EXPECT_GT(trained(request).result.step, first.result.step);
}

TEST(Trainer, AFinishedRunSaysSoWithItsOwnNumbers) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  const TrainRequest request = small_request(dir / "data", dir / "run", 5);
  const TrainResult first = train_run(test_context(), request, validating({1.5}));
  const TrainResult again = train_run(test_context(), request, validating({}));
  EXPECT_TRUE(again.finished);
  EXPECT_EQ(again.updates, 0);
  EXPECT_EQ(again.loss, first.loss);
  EXPECT_EQ(again.valid_loss, 1.5);
  EXPECT_EQ(again.seconds, first.seconds);
}

TEST(Trainer, AStopDuringValidationLosesNeitherStepsNorTheValidation) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 8);
  request.train.save_every = 0, request.train.eval_every = 4;
  const RunDir run(dir / "run");
  TrainEvents events = validating({});
  events.validate = [&](Transformer&, const TokenFile&, int64_t, int64_t) -> std::optional<double> {
    EXPECT_THAT(checkpoint_steps(run), ElementsAre(4)) << "a kill during validation would lose everything";
    return std::nullopt;
  };
  const TrainResult stopped = train_run(test_context(), request, events);
  EXPECT_FALSE(stopped.finished);
  EXPECT_EQ(stopped.step, 4);
  EXPECT_TRUE(train_run(test_context(), request, validating({2, 3})).finished);
  const std::vector<MetricsRecord> curve = read_metrics(run);
  EXPECT_EQ(curve[3].valid_loss, 2.0);
  EXPECT_EQ(curve[7].valid_loss, 3.0);
  EXPECT_EQ(read_best(run)->step, 4);
}

TEST(Trainer, DivergenceIsAnErrorThatNamesTheStep) {
  const ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainRequest request = small_request(dir / "data", dir / "run", 50);
  request.train.optimizer.optimizer = OptimizerKind::kSgd, request.train.optimizer.clip = 0;
  request.train.schedule.lr = 1e30, request.train.schedule.warmup = 0;
  EXPECT_THAT(error_of([&] { trained(request); }), HasSubstr("--lr"));
}

// A tiny model learns 2 kB by heart with every method.
TEST(Trainer, OverfitsAShortText) {
  const ScratchDir dir;
  write_token_set(dir / "data", 500);
  for (const PositionMethod* method : position_methods()) {
    SCOPED_TRACE(method->name);
    TrainRequest request = small_request(dir / "data", dir / method->name, 250);
    request.model = small_model(method->name);
    request.model.length = 50;
    TrainConfig& config = request.train;
    config.batch_tokens = 250, config.micro_batch_tokens = 0, config.save_every = 0, config.log_every = 100;
    config.optimizer.weight_decay = 0, config.schedule.lr = 1e-2, config.schedule.min_lr = 0.02;
    EXPECT_LT(trained(request).result.loss, 0.05);
  }
}

}  // namespace
}  // namespace longshot
