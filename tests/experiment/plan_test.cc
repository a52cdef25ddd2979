// What `compare` trains, and what it refuses before it trains anything.
#include "experiment/plan.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "train/support.h"

namespace longshot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Plan : public testing::Test {
 protected:
  Plan() {
    write_token_set(dir_ / "data", 4000);
    config_.model = small_model();
    config_.train = small_training(5);
    config_.positions = {"alibi"};
    config_.test.lengths = {24, 48};
  }
  std::vector<ModelPlan> plans() const { return plan_models(config_, TokenSet(dir_ / "data")); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const ModelPlan& plan : plans()) names.push_back(plan.name);
    return names;
  }
  std::string complaint() const {
    try {
      plans();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  void load(const std::string& toml) {
    Options options;
    config_.fields(options);
    options.load_toml_text(toml, "recipe");
  }

  ScratchDir dir_;
  ExperimentConfig config_;
};

TEST_F(Plan, TheGridIsPositionsLengthsAndSeeds) {
  config_.positions = {"alibi", "t5"};
  config_.train_lengths = {12, 24};
  config_.seeds = {1, 2, 2};
  config_.baseline_positions = {"none"};
  config_.baseline_lengths = {48};
  EXPECT_THAT(names(), ElementsAre("alibi-L12-s1", "alibi-L12-s2", "alibi-L24-s1", "alibi-L24-s2", "t5-L12-s1",
                                   "t5-L12-s2", "t5-L24-s1", "t5-L24-s2", "none-L48-s1", "none-L48-s2"));
  EXPECT_EQ(plans()[5].model.position, "t5");
  EXPECT_EQ(plans()[5].model.length, 12);
  EXPECT_EQ(plans()[5].train.seed, 2u);
  EXPECT_EQ(plans()[5].variant, "t5-L12");
}

TEST_F(Plan, AVariantIsAnySetOfOptions) {
  config_.positions = {};
  load(R"(
seeds = [3, 4]
[variant.steep]
position = "alibi"
alibi-slopes = [1, 0.5, 0.25, 0.125]
lr = 0.5
[variant.wide]
position = "rotary"
dim = 64
seed = 9
)");
  EXPECT_THAT(names(), ElementsAre("steep-s3", "steep-s4", "wide"));
  const std::vector<ModelPlan> all = plans();
  EXPECT_EQ(all[0].variant, "steep");
  EXPECT_EQ(all[1].train.schedule.lr, 0.5);
  EXPECT_EQ(all[2].model.dim, 64);
  EXPECT_EQ(all[2].train.seed, 9u);
  EXPECT_EQ(all[2].model.position, "rotary");
}

TEST_F(Plan, VariantsSurviveTheConfigFile) {
  load("[variant.a]\nlr = 0.25\n[variant.'b.c']\nposition = \"none\"\n");
  ExperimentConfig read;
  Options options;
  read.fields(options);
  options.load_toml_text(config_.to_toml(), "written");
  EXPECT_EQ(read.to_toml(), config_.to_toml());
  ASSERT_EQ(read.variants.size(), 2u);
  EXPECT_EQ(read.variants[1].name, "b.c");
}

TEST_F(Plan, WhatDoesNotFitIsFoundBeforeTraining) {
  const auto refused = [&](const auto& change, const std::string& why) {
    const ExperimentConfig whole = config_;
    change(config_);
    EXPECT_THAT(complaint(), HasSubstr(why));
    config_ = whole;
  };
  EXPECT_EQ(complaint(), "");
  refused([](auto& c) { c.test.lengths = {24, 100000}; }, "100000");
  refused([](auto& c) { c.test.split = "tset"; }, "no split 'tset'");
  refused([](auto& c) { c.test.stride = 8; }, "sliding");
  refused([](auto& c) { c.positions = {"alibi", "alibbi"}; }, "alibbi");
  refused([](auto& c) { c.variants = {{"x", {{"position", "alibi"}, {"alibi-slopes", "1,2"}}}}; }, "slopes");
  refused([](auto& c) { c.variants = {{"x", {{"position", "rotary"}, {"rotary-style", "round"}}}}; }, "rotary-style");
  refused([](auto& c) { c.variants = {{"x", {{"lenght", "3"}}}}; }, "length");
  refused([](auto& c) { c.variants = {{"x", {{"seed", "9223372036854775808"}}}}; }, "9223372036854775808");
  refused([](auto& c) { c.variants = {{"../x", {}}}; }, "variant's name");
  refused([](auto& c) { c.train_lengths = {24, 5000}; }, "5000");
  refused([](auto& c) { c.seeds = {}; }, "nothing to compare");
  refused([](auto& c) { c.seeds = {-1}; }, "-1");
}

TEST_F(Plan, TheAdaptiveArchitectureCanBeCompared) {
  load("adaptive-cutoffs = [50, 100]\n");
  EXPECT_EQ(complaint(), "");
  load("adaptive-cutoffs = [50, 1000]\n");
  EXPECT_THAT(complaint(), HasSubstr("1000"));
}

TEST_F(Plan, WhatTheGridSaysIsNoOption) {
  Options options;
  config_.fields(options);
  EXPECT_THROW(options.at("position"), Error);
  EXPECT_THROW(options.at("seed"), Error);
}

TEST_F(Plan, AVariantMayScaleItsSlopesInTestsAlone) {
  load(R"(
    positions = ["alibi"]
    [variant.ntk]
    position = "alibi"
    alibi-scaling = "ntk"
    alibi-scaling-factor = 4.0
  )");
  const std::vector<ModelPlan> all = plans();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_FALSE(all[0].tests.scaling);
  EXPECT_EQ(all[1].tests.scaling, "alibi-scaling ntk, alibi-scaling-factor 4");
  EXPECT_EQ(question_of(all[1].tests.evaluations[0], all[1].tests).scaling, all[1].tests.scaling);
  EXPECT_EQ(all[1].model.position_options.running_text(), "") << "training would see it";
  load(R"(
    [variant.wrong]
    position = "rotary"
    alibi-scaling = "dynamic"
  )");
  EXPECT_THAT(complaint(), HasSubstr("--alibi-scaling is for position method 'alibi', but the model's is 'rotary'"));
}

}  // namespace
}  // namespace longshot
