// An experiment whose models several ranks train: the numbers of one process, whoever trained what.
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <set>

#include "base/lock.h"
#include "dist/ranks.h"
#include "experiment/experiment.h"
#include "run/read_run.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

class SharedExperiment : public testing::Test {
 protected:
  SharedExperiment() {
    write_token_set(dir_ / "data", 4000);
    config_.model = small_model();
    config_.train = small_training(12);
    config_.positions = {"alibi", "rotary"};
    config_.seeds = {1, 2};
    config_.test.lengths = {24, 48};
    config_.speed_rounds = 0;
  }
  ExperimentPlace place(const std::string& out, Communicator* world, int ranks_per_model = 1) const {
    return {.data = (dir_ / "data").string(),
            .out = (dir_ / out).string(),
            .world = world,
            .ranks_per_model = ranks_per_model};
  }
  // Losses of all models, by name.
  static std::map<std::string, std::vector<OptionalNumber>> losses(const Results& results) {
    std::map<std::string, std::vector<OptionalNumber>> all;
    for (const RunRecord& run : results.runs)
      for (const EvalRecord& e : run.evals) all[run.name].push_back(e.loss);
    return all;
  }
  ScratchDir dir_;
  ExperimentConfig config_;
};

TEST_F(SharedExperiment, HasTheNumbersOfOneProcess) {
  Context context(1);
  const auto one = run_experiment(context, place("one", nullptr), config_, {});
  ASSERT_TRUE(one);
  std::mutex mutex;
  std::multiset<std::string> trained;
  std::set<int> ranks;
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context own(1);
    ExperimentCallbacks callbacks;
    callbacks.on_model = [&](const ExperimentCallbacks::Model& m) {
      const std::lock_guard lock(mutex);
      trained.insert(m.plan.name);
      ranks.insert(world.rank());
    };
    const auto shared = run_experiment(own, place("shared", &world), config_, callbacks);
    ASSERT_TRUE(shared);
    if (world.is_root()) {
      EXPECT_EQ(losses(*shared), losses(*one));
    }
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(trained, SizeIs(4));  // each once
  EXPECT_EQ(std::set<std::string>(trained.begin(), trained.end()).size(), 4u);
  EXPECT_THAT(ranks, SizeIs(2));
}

TEST_F(SharedExperiment, GroupsOfRanksHaveTheBitsOfOneProcess) {
  config_.train.eval_every = 6;
  Context context(1);
  const auto one = run_experiment(context, place("one", nullptr), config_, {});
  ASSERT_TRUE(one);
  std::mutex mutex;
  std::multiset<std::string> trained;
  std::set<int> reporting;
  const auto errors = on_ranks(4, [&](Communicator& world) {
    Context own(1);
    ExperimentCallbacks callbacks;
    callbacks.on_model = [&](const ExperimentCallbacks::Model& m) {
      const std::lock_guard lock(mutex);
      trained.insert(m.plan.name);
    };
    const auto report = [&] {
      const std::lock_guard lock(mutex);
      reporting.insert(world.rank());
    };
    callbacks.on_step = [&](const ExperimentCallbacks::Model&, const StepReport&) { report(); };
    callbacks.on_tested = [&](const ExperimentCallbacks::Model&, const RunRecord&) { report(); };
    const auto shared = run_experiment(own, place("shared", &world, 2), config_, callbacks);
    ASSERT_TRUE(shared);
    if (!world.is_root()) return;
    EXPECT_EQ(losses(*shared), losses(*one));
    for (size_t i = 0; i < one->runs.size(); ++i)
      EXPECT_EQ(shared->runs[i].evals[0].weights, one->runs[i].evals[0].weights);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(trained, SizeIs(4));  // each by one group
  EXPECT_THAT(reporting, Each(AnyOf(0, 2)));
}

TEST_F(SharedExperiment, AGroupTestsWhatIsTrained) {
  config_.positions = {"alibi"};
  config_.seeds = {1};
  Context context(1);
  const auto one = run_experiment(context, place("one", nullptr), config_, {});
  ASSERT_TRUE(one);
  config_.test.lengths = {24};
  ASSERT_TRUE(run_experiment(context, place("out", nullptr), config_, {}));
  config_.test.lengths = {24, 48};
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context own(1);
    const auto grown = run_experiment(own, place("out", &world, 2), config_, {});
    ASSERT_TRUE(grown);
    if (world.is_root()) {
      EXPECT_EQ(losses(*grown), losses(*one));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(SharedExperiment, AGroupChoosesOneNumberOfStepsInEqualTime) {
  config_.equal_time = 0.02;
  config_.positions = {"alibi"};
  config_.seeds = {1};
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context own(1);
    const auto results = run_experiment(own, place("out", &world, 2), config_, {});
    ASSERT_TRUE(results);
    if (world.is_root()) {
      EXPECT_GE(results->runs.at(0).steps.value_or(0), 10);
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(SharedExperiment, AStopOfOneRankStopsItsGroup) {
  config_.test.batch_tokens = 48;  // both ranks have windows to score
  for (const bool testing : {false, true}) {
    std::atomic<bool> stops = false;
    const auto errors = on_ranks(2, [&](Communicator& world) {
      Context own(1);
      ExperimentCallbacks callbacks;
      if (testing) callbacks.on_test = [&](const auto&, const auto&) { stops = true; };
      if (!testing) callbacks.on_step = [&](const auto&, const auto&) { stops = true; };
      callbacks.should_stop = [&] { return world.rank() == 1 && stops; };
      EXPECT_FALSE(run_experiment(own, place(testing ? "tests" : "trains", &world, 2), config_, callbacks));
    });
    EXPECT_THAT(errors, Each(""));
    EXPECT_TRUE(stops);
  }
}

TEST_F(SharedExperiment, WhatRankZeroOfAGroupCannotReadEndsTheGroup) {
  make_directories(dir_ / "out" / "runs" / "alibi-L24-s1" / "run.json");
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context own(1);
    run_experiment(own, place("out", &world, 2), config_, {});
  });
  EXPECT_THAT(errors, Each(HasSubstr("run.json")));
}

// Whoever comes next does what a process that is gone has left, and waits for one that is not.
TEST_F(SharedExperiment, AModelThatAnotherProcessIsAtIsWaitedFor) {
  Context context(1);
  make_directories(dir_ / "out" / "runs");
  auto claim = std::make_unique<DirectoryLock>(DirectoryLock::beside(dir_ / "out" / "runs" / "alibi-L24-s1"));
  std::vector<std::string> order;
  ExperimentCallbacks callbacks;
  callbacks.on_model = [&](const ExperimentCallbacks::Model& m) {
    order.push_back(m.plan.name);
    if (order.size() == 3) claim.reset();
  };
  const auto results = run_experiment(context, place("out", nullptr), config_, callbacks);
  ASSERT_TRUE(results);
  EXPECT_EQ(results->runs.size(), 4u);
  ASSERT_EQ(order.size(), 4u);
  EXPECT_EQ(order.back(), "alibi-L24-s1");
}

TEST_F(SharedExperiment, AStopOfRankZeroBetweenModelsIsNoError) {
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context own(1);
    ExperimentCallbacks callbacks;
    callbacks.should_stop = [] { return true; };
    EXPECT_FALSE(run_experiment(own, place("out", &world), config_, callbacks));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(SharedExperiment, ARankThatIsGoneIsNamedWhileTheOthersHaveModelsLeft) {
  config_.train.steps = 100'000;
  const auto errors = on_ranks(2, [&](Communicator& world) {
    world.set_patience(0.3);
    Context own(1);
    ExperimentCallbacks callbacks;
    callbacks.on_model = [&](const ExperimentCallbacks::Model&) {
      if (!world.is_root()) fail("gone");
    };
    callbacks.on_tested = [](const auto&, const auto&) { ADD_FAILURE() << "a whole model later"; };
    run_experiment(own, place("out", &world), config_, callbacks);
  });
  EXPECT_THAT(errors[0], HasSubstr("has heard nothing from rank 1"));
}

TEST_F(SharedExperiment, RanksWithOtherTextForTestsAreNamed) {
  write_token_set(dir_ / "source", 5000);
  make_directories(dir_ / "other");
  fs::copy(dir_ / "data", dir_ / "other");
  fs::copy(dir_ / "source" / "valid.tokens", dir_ / "other", fs::copy_options::overwrite_existing);
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context own(1);
    ExperimentPlace at = place("out", &world);
    if (!world.is_root()) at.data = (dir_ / "other").string();
    run_experiment(own, at, config_, {});
  });
  EXPECT_THAT(errors, Each(HasSubstr("the hash of the text 'valid' in --data is")));
}

TEST_F(SharedExperiment, RanksThatWereToldOtherThingsAreNamed) {
  const auto errors = on_ranks(2, [&](Communicator& world) {
    Context own(1);
    ExperimentConfig config = config_;
    config.train.schedule.lr = world.is_root() ? 0.1 : 0.2;
    run_experiment(own, place("out", &world), config, {});
  });
  EXPECT_THAT(errors, Each(HasSubstr("the ranks disagree")));
}

}  // namespace
}  // namespace longshot
