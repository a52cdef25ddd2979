#include "train/forecast.h"

#include <gmock/gmock.h>

#include "dist/ranks.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::Each;

// Layers of 12.6 million parameters: several buckets each. Takes no memory.
std::unique_ptr<Transformer> large_model(bool tied = false) {
  ModelConfig config = small_model();
  config.layers = 4, config.dim = 1024, config.heads = 8, config.tied = tied;
  return std::make_unique<Transformer>(config, true, Transformer::Memory::kReserved, SharedGradients::kApart);
}

// 16 sequences a step, tried with one.
TrainConfig training(const Transformer& model) {
  TrainConfig train = small_training(1);
  train.batch_tokens = 16 * model.config().length, train.micro_batch_tokens = 0;
  return train;
}
constexpr StepTrial kTrial{.sequences = 1,
                           .pass = {.forward = 1, .output = 2, .last_backward = 1.5, .backward = 2, .embedding = 0.5},
                           .update = 1e-9};

TEST(Forecast, ComputeIsThePartsOfAPassAndAnUpdate) {
  const auto model = large_model();
  const auto parameters = static_cast<double>(model->parameters().end());
  const double pass = 4 * 1 + 2 + 1.5 + 3 * 2 + 0.5;
  EXPECT_DOUBLE_EQ(kTrial.compute_seconds(*model, training(*model), 1), 16 * pass + 1e-9 * parameters);
  EXPECT_NEAR(kTrial.compute_seconds(*model, training(*model), 4), 4 * pass + 1e-9 * parameters / 4, 1e-3);
}

TEST(Forecast, TheLastRankIsTheBusiest) {
  TrainConfig train;
  for (int ranks = 1; ranks < 20; ++ranks) {
    for (int64_t sequences = ranks; sequences < 70; ++sequences) {
      train.batch_tokens = sequences;
      for (int r = 0; r < ranks; ++r)
        EXPECT_LE(Trainer::plan(train, 1, r, ranks).count, busiest_plan(train, 1, ranks).count);
    }
  }
}

TEST(Forecast, BytesAreThoseThatAStepSends) {
  const ScratchDir dir;
  write_token_set(dir / "data", 3000);
  const TokenSet tokens((dir / "data").string());
  for (const int count : {2, 3}) {
    SCOPED_TRACE(count);
    ModelConfig config = small_model();
    config.dim = 192;  // of more than one bucket, tied
    TrainConfig train = small_training(1);
    train.batch_tokens = 8 * config.length;
    const auto errors = on_ranks(count, [&](Communicator& world) {
      Context context(1);
      Transformer model(config, true, Transformer::Memory::kMemory, SharedGradients::kApart);
      model.initialize(context, 1);
      Trainer trainer(context, {.model = model, .tokens = tokens.split("train"), .world = &world}, train);
      auto& rank = dynamic_cast<ThreadRank&>(world);
      const int64_t before = rank.sent();
      trainer.seconds_per_step();  // six steps
      const StepForecast f = forecast_step(model, train, kTrial, {1e9, 1e-5}, count);
      const int64_t loss = static_cast<int64_t>(sizeof(double)) * (count - 1);
      if (world.is_root()) {
        EXPECT_EQ(rank.sent() - before, 6 * (f.bytes_sent + loss));
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST(Forecast, AFastLinkIsNotNoticedAndASlowOneIsAllThereIs) {
  const auto model = large_model(true);
  const TrainConfig train = training(*model);
  const StepForecast fast = forecast_step(*model, train, kTrial, {1e18, 1e-18}, 8);
  EXPECT_NEAR(fast.seconds(), fast.compute, 1e-6);
  EXPECT_GT(fast.alone, 7.9 * fast.compute);
  const StepForecast slow = forecast_step(*model, train, kTrial, {1e3, 1e-18}, 8);
  EXPECT_NEAR(slow.seconds() / slow.sending, 1, 0.01);
  EXPECT_DOUBLE_EQ(slow.sending, static_cast<double>(slow.bytes_sent) / 1e3);
}

// Where a layer's numbers are sent in the time of half a layer, what is left is the last bucket of gradients and the parameters
// that the first layer needs.
TEST(Forecast, WhatIsSentIsHiddenBehindThePasses) {
  const auto model = large_model();
  const TrainConfig train = training(*model);
  const auto layer = static_cast<double>(model->gradients_of_layer(1) - model->gradients_of_layer(0)) * 4;
  const Link link{layer / 1.0, 1e-3};  // a rank's passes have two sequences: a layer takes 2 s and 4 s
  const StepForecast f = forecast_step(*model, train, kTrial, link, 8);
  const Shards shards(model->parameters(), 8);
  const Bucket& last = shards.of_gradients().back();
  const double sent = 4 * static_cast<double>(last.cuts.back() - last.of(0).count()) / link.bytes_per_second;
  double values = 0;
  for (const Bucket& b : shards.of_values()) {
    if (b.begin() >= model->gradients_of_layer(1)) break;
    values += 4 * 7 * static_cast<double>(b.of(0).count()) / link.bytes_per_second;
  }
  EXPECT_NEAR(f.waiting, sent + values + 7 * link.latency, 2e-2);  // and the squares of the norm
  EXPECT_LT(f.waiting, 0.3 * f.sending);
}

}  // namespace
}  // namespace longshot
