// Training on several ranks gives the bits of one process. Ranks are threads here; tests/mpirun starts real ones.
#include "dist/ranks.h"

#include <gmock/gmock.h>

#include <mutex>

#include "train/support.h"

namespace longshot {
namespace {

using testing::Each;
using testing::HasSubstr;

// Everything a checkpoint holds beside the clock's readings.
struct Saved {
  std::string weights, moments;
  OptionalNumber loss;
  bool operator==(const Saved&) const = default;
};

Saved saved(const fs::path& run, int64_t step) {
  const fs::path dir = RunDir(run).checkpoint(step);
  Saved s{read_text(dir / "model.safetensors"), read_text(dir / "optimizer.safetensors"), {}};
  for (const MetricsRecord& r : read_metrics(RunDir(run))) {
    if (r.step == step && r.loss) s.loss = r.loss;
  }
  return s;
}

// Trains on so many ranks, to the end or until `stop_at`.
Saved train_on(int ranks, const TrainRequest& request, int64_t stop_at = -1) {
  std::atomic<int64_t> reached{0};
  const auto errors = on_ranks(ranks, [&](Communicator& world) {
    Context context(2);
    int64_t done = 0;
    TrainEvents events;
    events.on_step = [&](const StepReport& r) { done = r.metrics.step; };
    events.should_stop = [&] { return done == stop_at && world.rank() == world.size() - 1; };
    const TrainResult result = train_run(context, request, events, &world);
    if (world.is_root()) reached = result.step;
  });
  EXPECT_THAT(errors, Each(""));
  return saved(request.out, reached);
}

class TrainingOnRanks : public testing::Test {
 protected:
  void SetUp() override { write_token_set(dir_ / "data", 3000); }

  // 16 sequences a step, in passes of up to 16.
  TrainRequest request(const std::string& name, const std::string& position = "alibi") const {
    TrainRequest r = small_request(dir_ / "data", dir_ / name, 3);
    r.model = small_model(position);
    r.train.batch_tokens = 24 * 16, r.train.micro_batch_tokens = 0, r.train.save_every = 0, r.train.save_minutes = 0;
    return r;
  }

  // With 2, 4 and 8 ranks as with one.
  void expect_same_bits(const TrainRequest& r, const std::string& what) const {
    SCOPED_TRACE(what);
    TrainRequest one = r;
    one.out = (dir_ / (what + "-1")).string();
    const Saved alone = train_on(1, one);
    for (const int ranks : {2, 4, 8}) {
      TrainRequest some = r;
      some.out = (dir_ / fmt::format("{}-{}", what, ranks)).string();
      const Saved together = train_on(ranks, some);
      EXPECT_TRUE(together.weights == alone.weights) << what << " on " << ranks << " ranks: weights";
      EXPECT_TRUE(together.moments == alone.moments) << what << " on " << ranks << " ranks: moments";
      EXPECT_EQ(together.loss, alone.loss) << what << " on " << ranks << " ranks";
    }
  }

  ScratchDir dir_;
};

TEST_F(TrainingOnRanks, HasTheSameBitsForEveryPositionMethod) {
  for (const PositionMethod* method : position_methods()) expect_same_bits(request("", method->name), method->name);
}

TEST_F(TrainingOnRanks, HasTheSameBitsForEveryFeature) {
  const auto with = [&](const std::string& what, const std::function<void(TrainRequest&)>& change) {
    TrainRequest r = request("");
    change(r);
    expect_same_bits(r, what);
  };
  with("learned-slopes", [](TrainRequest& r) { r.model.set("alibi-learned", "true"); });
  with("t5-not-shared", [](TrainRequest& r) { r.model.position = "t5", r.model.set("t5-shared", "false"); });
  with("dropout", [](TrainRequest& r) {
    r.model.dropout = r.model.attention_dropout = r.model.activation_dropout = r.model.embedding_dropout = 0.2;
  });
  with("adaptive", [](TrainRequest& r) {
    r.model.adaptive_cutoffs = {20, 100}, r.model.adaptive_dropout = 0.2, r.model.final_norm = true;
  });
  with("two-at-a-time", [](TrainRequest& r) { r.train.micro_batch_tokens = 24 * 2; });
  with("one-at-a-time", [](TrainRequest& r) { r.train.micro_batch_tokens = 24; });
  with("four-at-a-time-adaptive", [](TrainRequest& r) {
    r.train.micro_batch_tokens = 24 * 4, r.model.adaptive_cutoffs = {20, 100};
  });
  with("uneven", [](TrainRequest& r) { r.train.batch_tokens = 24 * 11, r.train.micro_batch_tokens = 24 * 3; });
  with("masked", [](TrainRequest& r) { r.model.document_mask = true; });
  with("untied", [](TrainRequest& r) { r.model.tied = false; });
  with("recomputed", [](TrainRequest& r) { r.train.recompute = true; });
  with("clipped", [](TrainRequest& r) { r.train.optimizer.clip = 1e-3; });
  with("nag", [](TrainRequest& r) { r.train.optimizer.optimizer = OptimizerKind::kNag; });
  with("bf16", [](TrainRequest& r) { r.train.precision = Precision::kBf16; });
  with("few-heads", [](TrainRequest& r) {  // cut into parts for the threads
    r.model.heads = 1, r.model.length = 300, r.train.batch_tokens = 300 * 16;
  });
  with("post-norm", [](TrainRequest& r) { r.model.set("norm-position", "post"); });
  with("swiglu-rms", [](TrainRequest& r) { r.model.set("activation", "swiglu"), r.model.set("norm", "rmsnorm"); });
  with("several-buckets", [](TrainRequest& r) { r.model.dim = 320, r.model.layers = 4; });
  with("embedding-norm", [](TrainRequest& r) { r.model.set("embedding-norm", "true"); });
}

// Pieces are cut between whole units: of a model as small as this rank 0 of four has none.
TEST_F(TrainingOnRanks, RankZeroMayHaveNoParameters) {
  TrainRequest r = request("");
  r.model.layers = 1, r.model.dim = 16, r.model.heads = 2;
  expect_same_bits(r, "tiny");
  r.train.steps = 5, r.out = (dir_ / "tiny-4").string();
  train_on(4, r);
  r.out = (dir_ / "tiny-1").string();
  train_on(1, r);
  EXPECT_EQ(saved(dir_ / "tiny-4", 5), saved(dir_ / "tiny-1", 5));
}

TEST_F(TrainingOnRanks, GoesOnWithAnyNumberOfRanks) {
  for (const bool in_passes : {false, true}) {
    TrainRequest whole = request(in_passes ? "whole-passes" : "whole"), parts = whole;
    parts.out = (dir_ / (in_passes ? "parts-passes" : "parts")).string();
    for (TrainRequest* r : {&whole, &parts}) {
      r->train.steps = 8, r->model.dropout = 0.1;
      if (in_passes) r->train.micro_batch_tokens = 24 * 3;
    }
    const Saved uninterrupted = train_on(1, whole);
    train_on(8, parts, 2);
    train_on(1, parts, 4);
    train_on(4, parts, 5);
    EXPECT_EQ(train_on(2, parts), uninterrupted);
  }
}

TEST_F(TrainingOnRanks, OtherNumbersOfRanksAgreeToRounding) {
  const Saved one = train_on(1, request("one"));
  std::vector<Saved> three;
  for (const char* name : {"three", "three-again"}) three.push_back(train_on(3, request(name)));
  EXPECT_EQ(three[0], three[1]);
  EXPECT_NE(three[0].weights, one.weights);
  EXPECT_NEAR(*three[0].loss, *one.loss, 1e-5);
}

TEST_F(TrainingOnRanks, PlainSumsAreAnotherOrderOnly) {
  TrainRequest plain = request("plain");
  plain.train.batch_groups = 1;
  const Saved a = train_on(1, plain), b = train_on(1, request("grouped"));
  EXPECT_NE(a.weights, b.weights);
  EXPECT_NEAR(*a.loss, *b.loss, 1e-5);
}

TEST_F(TrainingOnRanks, AreRefusedWhereTheyDisagree) {
  write_token_set(dir_ / "other", 3100);
  const auto errors_of = [&](const std::function<void(TrainRequest&, int)>& change) {
    return on_ranks(2, [&](Communicator& world) {
      Context context(1);
      TrainRequest r = request("never");
      change(r, world.rank());
      train_run(context, r, {}, &world);
    });
  };
  EXPECT_THAT(errors_of([](TrainRequest& r, int rank) { r.train.schedule.lr = rank == 1 ? 0.5 : 0.25; }),
              Each(HasSubstr("--lr is 0.25 on rank 0 (thread-0), but 0.5 on rank 1 (thread-1)")));
  EXPECT_THAT(errors_of([&](TrainRequest& r, int rank) { r.data = (dir_ / (rank == 1 ? "other" : "data")).string(); }),
              Each(HasSubstr("the hash of the text 'train' in --data is ")));
  EXPECT_THAT(errors_of([](TrainRequest& r, int) { r.train.batch_tokens = 24; }),
              Each(HasSubstr("--batch-tokens holds 1 sequences, too few for 2 ranks")));
  EXPECT_FALSE(fs::exists(dir_ / "never"));
}

TEST_F(TrainingOnRanks, AreRefusedWhereTextForValidationDiffers) {
  for (const char* change : {"another", "none"}) {
    write_token_set(dir_ / "other", 3000);
    write_token_set(dir_ / "source", 5000);
    fs::remove(dir_ / "other" / "valid.tokens");
    if (change == std::string("another")) fs::copy(dir_ / "source" / "valid.tokens", dir_ / "other" / "valid.tokens");
    const auto errors = on_ranks(2, [&](Communicator& world) {
      Context context(1);
      TrainRequest r = request("never");
      if (world.rank() == 1) r.data = (dir_ / "other").string();
      train_run(context, r, {}, &world);
    });
    EXPECT_THAT(errors, Each(HasSubstr(change == std::string("another") ? "the hash of the text 'valid' in --data is"
                                                                        : "the splits of --data is train, valid on")));
  }
  EXPECT_FALSE(fs::exists(dir_ / "never"));
}

TEST_F(TrainingOnRanks, ALossThatIsNoNumberEndsAllWithTheSameWords) {
  TrainRequest r = request("diverges");
  r.train.steps = 20, r.train.schedule.lr = 1e30, r.train.schedule.warmup = 0, r.train.optimizer.clip = 0;
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context context(1);
    try {
      train_run(context, r, {}, &world);
    } catch (const Error& e) {
      EXPECT_TRUE(world.all_end_with(e.what(), 5)) << "messages were given up";
      throw;
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("Use a lower --lr")));
}

TEST_F(TrainingOnRanks, AnErrorBetweenStepsLeavesNothingMoving) {
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context context(1);
    TrainEvents events;
    events.on_step = [&](const StepReport&) {
      EXPECT_TRUE(static_cast<ThreadRank&>(world).is_moving());
      fail("the disk is full");
    };
    try {
      train_run(context, request("broken"), events, &world);
    } catch (const Error&) {
      EXPECT_FALSE(static_cast<ThreadRank&>(world).is_moving());
      throw;
    }
  });
  EXPECT_THAT(errors, Each("the disk is full"));
}

TEST_F(TrainingOnRanks, WhatOneAloneCannotReadEndsAll) {
  write_token_set(dir_ / "damaged", 3000);
  std::fstream file(dir_ / "damaged" / "train.tokens", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(500);
  file.put('~');
  file.close();
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context context(1);
    TrainRequest r = request("never");
    if (world.rank() == 1) r.data = (dir_ / "damaged").string();
    train_run(context, r, {}, &world);
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 (thread-1): ")));
}

TEST_F(TrainingOnRanks, EachHoldsItsShareOfTheMoments) {
  Transformer model(small_model(), true);
  const Shards shards(model.parameters(), 4);
  int64_t floats = 0;
  for (int r = 0; r < 4; ++r) {
    floats += shards.floats(r);
    EXPECT_NEAR(static_cast<double>(shards.floats(r)), static_cast<double>(model.parameters().end()) / 4, 4096);
  }
  EXPECT_EQ(floats, model.parameters().end());
}

}  // namespace
}  // namespace longshot
