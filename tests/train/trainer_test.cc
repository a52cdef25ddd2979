#include "train/trainer.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "context.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

struct TrainedRun {
  std::vector<float> weights;
  Trainer::Result result;
};

// Trains up to config.steps, or until `stop_at` updates are done; resumes where the run stands.
TrainedRun train_run(const fs::path& data, const fs::path& out, const ModelConfig& model_config, TrainConfig config,
                     int64_t stop_at = -1) {
  const TokenSet tokens(data);
  Transformer model(model_config, true);
  model.initialize(test_context(), config.seed);
  Trainer trainer(test_context(), {model, tokens.split("train"), &tokens.tokenizer(), RunDir(out)}, config);
  trainer.resume(0);
  int64_t done = 0;
  TrainerCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& r) { done = r.step; };
  callbacks.should_stop = [&] { return done == stop_at; };
  const Trainer::Result result = trainer.train(callbacks);
  const auto values = model.parameters().values();
  return {{values.begin(), values.end()}, result};
}

TEST(Trainer, ResumedEqualsUninterruptedBitForBit) {
  ScratchDir dir;
  write_token_set(dir / "data", 700);
  for (const PositionMethod* method : position_methods()) {
    for (const char* optimizer : {"adamw", "nag", "sgd"}) {
      if (method->name != "alibi" && optimizer != std::string("adamw")) continue;
      SCOPED_TRACE(method->name + " " + optimizer);
      ModelConfig model = small_model(method->name);
      model.dropout = 0.1, model.attention_dropout = 0.1;
      TrainConfig config = small_training(9);
      config.optimizer.optimizer = optimizer;
      const std::string name = method->name + optimizer;
      const TrainedRun whole = train_run(dir / "data", dir / (name + "-whole"), model, config);
      const TrainedRun first = train_run(dir / "data", dir / (name + "-parts"), model, config, 4);
      EXPECT_FALSE(first.result.finished);
      train_run(dir / "data", dir / (name + "-parts"), model, config, 7);
      const TrainedRun last = train_run(dir / "data", dir / (name + "-parts"), model, config);
      EXPECT_TRUE(last.result.finished);
      EXPECT_EQ(whole.weights, last.weights);
      EXPECT_EQ(whole.result.loss, last.result.loss);
    }
  }
}

TEST(Trainer, MicroBatchesChangeNothingBeyondRounding) {
  ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainConfig one = small_training(4), many = one;
  one.micro_batch_tokens = 0, many.micro_batch_tokens = 24 * 2;  // 5 sequences as 2 + 2 + 1
  const TrainedRun a = train_run(dir / "data", dir / "one", small_model(), one);
  const TrainedRun b = train_run(dir / "data", dir / "many", small_model(), many);
  for (size_t i = 0; i < a.weights.size(); ++i) ASSERT_NEAR(a.weights[i], b.weights[i], 2e-4);
  EXPECT_NEAR(a.result.loss, b.result.loss, 1e-4);
}

TEST(Trainer, MetricsOfAResumedRunAreThoseOfTheWhole) {
  ScratchDir dir;
  write_token_set(dir / "data", 700);
  train_run(dir / "data", dir / "run", small_model(), small_training(9), 5);
  // What was logged after the last checkpoint is logged again, once.
  append_record(RunDir(dir / "run").metrics(), {{"step", 6}, {"loss", 1.0}});
  train_run(dir / "data", dir / "run", small_model(), small_training(9));
  std::vector<int64_t> steps;
  for (const Json& record : read_records(RunDir(dir / "run").metrics())) steps.push_back(record["step"]);
  EXPECT_THAT(steps, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(Trainer, KeepsTheLastCheckpointsAndTheBest) {
  ScratchDir dir;
  write_token_set(dir / "data", 700);
  const TokenSet tokens(dir / "data");
  Transformer model(small_model(), true);
  model.initialize(test_context(), 1);
  TrainConfig config = small_training(12);
  config.save_every = 2, config.eval_every = 2, config.keep = 2;
  Trainer trainer(test_context(), {model, tokens.split("train"), &tokens.tokenizer(), RunDir(dir / "run")}, config);
  TrainerCallbacks callbacks;
  int validations = 0;
  callbacks.validate = [&] { return ++validations == 2 ? 1.0 : 2.0; };  // step 4 is the best
  trainer.train(callbacks);
  EXPECT_THAT(checkpoint_steps(RunDir(dir / "run")), testing::ElementsAre(4, 10, 12));
  EXPECT_EQ(find_checkpoint(dir / "run").filename(), "step-00000004");
}

TEST(Trainer, DivergenceIsAnErrorThatNamesTheStep) {
  ScratchDir dir;
  write_token_set(dir / "data", 700);
  TrainConfig config = small_training(50);
  config.optimizer.optimizer = "sgd", config.schedule.lr = 1e30, config.optimizer.clip = 0, config.schedule.warmup = 0;
  try {
    train_run(dir / "data", dir / "run", small_model(), config);
    FAIL() << "a learning rate of 1e30 did no harm";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("--lr"));
  }
}

TEST(Trainer, ResumingFromADamagedOneOffersTheOneBefore) {
  ScratchDir dir;
  write_token_set(dir / "data", 600);
  const TokenSet tokens(dir / "data");
  const RunDir run(dir / "run");
  const auto trainer_on = [&](Transformer& model) {
    TrainConfig config = small_training(6);
    return std::make_unique<Trainer>(test_context(),
                                     Trainer::Inputs{model, tokens.split("train"), &tokens.tokenizer(), run}, config);
  };
  Transformer model(small_model(), true);
  model.initialize(test_context(), 1);
  trainer_on(model)->train({});
  ASSERT_THAT(checkpoint_steps(run), testing::ElementsAre(3, 6));
  const fs::path victim = run.checkpoint(6) / kModelFile;
  write_atomically(victim, read_text(victim).substr(0, 100));
  EXPECT_THAT(error_of([&] { trainer_on(model)->resume(0); }),
              testing::AllOf(HasSubstr("interrupted"), HasSubstr("--resume-step 3")));
  EXPECT_EQ(trainer_on(model)->resume(3), 3);
  ModelConfig other = small_model();
  other.heads = 2;
  Transformer wrong(other, true);
  EXPECT_THAT(error_of([&] { trainer_on(wrong)->resume(3); }), HasSubstr("other model options"));
}

// A tiny model learns 2 kB by heart with every method.
TEST(Trainer, OverfitsAShortText) {
  ScratchDir dir;
  write_token_set(dir / "data", 500);
  for (const PositionMethod* method : position_methods()) {
    SCOPED_TRACE(method->name);
    ModelConfig model = small_model(method->name);
    model.length = 50;
    TrainConfig config = small_training(200);
    config.batch_tokens = 250, config.micro_batch_tokens = 0, config.save_every = 0, config.log_every = 100;
    config.optimizer.weight_decay = 0, config.schedule.lr = 1e-2, config.schedule.min_lr = 0.02;
    EXPECT_LT(train_run(dir / "data", dir / method->name, model, config).result.loss, 0.05);
  }
}

}  // namespace
}  // namespace longshot
