// Windows shared by several ranks: the same bits as those of one.
#include "dist/ranks.h"

#include <gmock/gmock.h>

#include "context.h"
#include "data/token_set.h"
#include "evaluate/evaluation.h"
#include "evaluate/validation.h"
#include "model/support.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::Each;
using testing::IsEmpty;

class SharedWindows : public testing::TestWithParam<int> {
 protected:
  SharedWindows() {
    write_token_set(dir_ / "data", 1200);
    set_ = std::make_unique<TokenSet>(dir_ / "data");
  }
  const TokenFile& tokens() const { return set_->split("valid"); }  // 300 tokens
  static std::unique_ptr<Transformer> model(const std::string& position) {
    ModelConfig c = tiny_config(position);
    c.vocab = 256, c.length = 32;
    return tiny_model(c);
  }

 private:
  ScratchDir dir_;
  std::unique_ptr<TokenSet> set_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, SharedWindows, testing::Values(2, 3, 5));

TEST_P(SharedWindows, GiveTheBitsOfOneProcess) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    const EvaluationConfig config{.lengths = {16, 32},
                                  .modes = {WindowMode::kNonoverlapping, WindowMode::kSliding},
                                  .scored = Scored::kAll,
                                  .batch_tokens = 40};
    const auto evaluated = [&](Communicator* world) {
      Context context(1);
      const auto own = model(name);
      EvaluationPlan plan = plan_evaluations(config, reach_of(*own), tokens());
      plan.world = world;
      return evaluate(context, {*own}, tokens(), plan, {});
    };
    const Evaluated one = evaluated(nullptr);
    ASSERT_EQ(one.records.size(), 4u);
    const auto errors = on_ranks(GetParam(), [&](Communicator& world) {
      const Evaluated shared = evaluated(&world);
      EXPECT_TRUE(shared.finished);
      if (!world.is_root()) {
        EXPECT_THAT(shared.records, IsEmpty());
        return;
      }
      ASSERT_EQ(shared.losses.size(), one.losses.size());
      for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_EQ(shared.losses[i].losses, one.losses[i].losses);
      for (size_t i = 0; i < one.records.size(); ++i) EXPECT_EQ(shared.records[i].loss, one.records[i].loss);
      EXPECT_EQ(shared.decomposition.size(), one.decomposition.size());
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST_P(SharedWindows, ValidateAsOneProcess) {
  const ScratchDir dir;
  write_token_set(dir / "data", 120000);  // several batches of the validation split
  const TokenSet set((dir / "data").string());
  const TokenFile& valid = set.split("valid");
  const auto loss = [&](Communicator* world) {
    Context context(1);
    const auto own = model("alibi");
    return validation(
        context, [] { return false; }, world)(*own, valid, valid.size(), 32);
  };
  const auto one = loss(nullptr);
  const auto errors = on_ranks(GetParam(), [&](Communicator& world) { EXPECT_EQ(loss(&world), one); });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(SharedWindows, StopOnAllRanksWhenOneIsStopped) {
  const auto errors = on_ranks(GetParam(), [&](Communicator& world) {
    Context context(1);
    const auto own = model("alibi");
    EvaluationPlan plan = plan_evaluations({.lengths = {16}, .batch_tokens = 16}, reach_of(*own), tokens());
    plan.world = &world;
    EvaluationCallbacks callbacks;
    int looks = 0;
    callbacks.should_stop = [&] { return world.rank() == 1 && ++looks > 2; };
    const Evaluated shared = evaluate(context, {*own}, tokens(), plan, callbacks);
    EXPECT_FALSE(shared.finished);
    EXPECT_THAT(shared.records, IsEmpty());
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace longshot
