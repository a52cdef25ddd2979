// An experiment whose models several ranks train: the numbers of one process, whoever trained what.
#include <gmock/gmock.h>

#include <mutex>
#include <set>

#include "base/lock.h"
#include "dist/ranks.h"
#include "experiment/experiment.h"
#include "run/read_run.h"
#include "train/support.h"

namespace longshot {
namespace {

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
  ExperimentPlace place(const std::string& out, Communicator* world) const {
    return {.data = (dir_ / "data").string(), .out = (dir_ / out).string(), .world = world};
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
