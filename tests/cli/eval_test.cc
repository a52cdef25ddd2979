// `longshot eval` and `longshot report` as a user meets them.
#include <nlohmann/json.hpp>

#include "cli/support.h"
#include "run/read_run.h"

namespace longshot {
namespace {

using testing::HasSubstr;
using testing::Not;

class Eval : public testing::Test {
 protected:
  Eval() {
    write_token_set(dir_ / "data", 3000);
    train("run", "");
  }
  void train(const std::string& name, const std::string& more) {
    const Outcome o =
        run(fmt::format("train --data {} --out {} --steps 4 --layers 1 --dim 16 --heads 2 --length 24 "
                        "--batch-tokens 48 --threads 1 {}",
                        path("data"), path(name), more));
    ASSERT_EQ(o.code, 0) << o.err;
  }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  Outcome run(const std::string& arguments) const { return longshot_run(dir_, arguments); }
  Outcome eval(const std::string& more) const {
    return run(fmt::format("eval {} --data {} --threads 1 {}", path("run"), path("data"), more));
  }
  ScratchDir dir_;
};

TEST_F(Eval, WhatCannotBeWrittenIsFoundBeforeScoring) {
  for (const std::string& option : {"--json " + path("missing/x.json"), "--json " + path("data"),
                                    "--losses " + path("missing/x.csv"), "--losses " + path("x.txt")}) {
    const Outcome o = eval("--lengths 24,48 " + option);
    EXPECT_NE(o.code, 0) << option;
    EXPECT_THAT(o.out, Not(HasSubstr("perplexity"))) << option;
    EXPECT_FALSE(fs::exists(dir_ / "run" / "evals.jsonl")) << option;
  }
}

TEST_F(Eval, ScaledSlopesAreAnotherConfiguration) {
  ASSERT_EQ(eval("--lengths 24,48").code, 0);
  const Outcome o = eval("--lengths 24,48 --alibi-scaling ntk --alibi-scaling-factor 4 --json " + path("ntk.json"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("run with alibi-scaling ntk, alibi-scaling-factor 4"));
  EXPECT_EQ(Json::parse(read_text(path("ntk.json")))["results"][0]["scaling"],
            "alibi-scaling ntk, alibi-scaling-factor 4");
  const std::vector<RunRecord> records = read_run(RunDir(path("run")));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].evals.size(), 2u);
  EXPECT_EQ(records[1].evals.size(), 2u);
  EXPECT_FALSE(records[0].evals[0].scaling);
  EXPECT_THAT(records[1].name, HasSubstr("alibi-scaling ntk"));
  EXPECT_NE(records[0].evals[1].loss, records[1].evals[1].loss);
  ASSERT_EQ(run(fmt::format("report {} --out {}", path("run"), path("report"))).code, 0);
  EXPECT_THAT(read_text(path("report/report.html")), HasSubstr("scaling alibi-scaling ntk"));
  train("rotary", "--position rotary");
  const Outcome refused = run(fmt::format("eval {} --data {} --alibi-scaling dynamic", path("rotary"), path("data")));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--alibi-scaling is for position method 'alibi'"));
}

TEST_F(Eval, OptionsThatDoNothingAreRefused) {
  EXPECT_EQ(eval("--lengths 24 --stride 8").code, 2);
  EXPECT_EQ(eval("--lengths 24 --attention-epsilon 1e6").code, 2);
  EXPECT_EQ(eval("--lengths 24 --attention-epsilon 0").code, 0);
  EXPECT_EQ(eval("--lengths 24,48 --mode sliding --stride 32").code, 0) << "a stride is cut to the window";
}

TEST_F(Eval, AFileNameMayLookLikeAnOption) {
  EXPECT_EQ(run(fmt::format("eval --data {} --lengths 24 --threads 1 -- {}", path("data"), path("run"))).code, 0);
  EXPECT_THAT(run("info -- --nothing").err, HasSubstr("--nothing: no such file"));
}

TEST_F(Eval, RecordsSayWhichWeightsAndWhichText) {
  ASSERT_EQ(eval("--lengths 24,48 --json " + path("x.json")).code, 0);
  const EvaluationLine line = EvaluationLine::from_json(read_json(dir_ / "x.json"), "x.json");
  ASSERT_EQ(line.results.size(), 2u);
  EXPECT_EQ(line.results[0].step, 4);
  EXPECT_TRUE(line.results[0].weights && line.results[0].data);
}

TEST_F(Eval, LossesOfEveryToken) {
  ASSERT_EQ(eval("--lengths 24,48 --losses " + path("l.csv")).code, 0);
  EXPECT_THAT(read_text(dir_ / "l.csv"), testing::StartsWith("place,id,nonoverlapping_24,nonoverlapping_48\n0,"));
}

// The same question asked twice has one answer, not two seeds.
TEST_F(Eval, ReportCountsARepeatedEvaluationOnce) {
  ASSERT_EQ(eval("--lengths 24,48 --max-tokens 96").code, 0);
  ASSERT_EQ(eval("--lengths 24,48 --max-tokens 96").code, 0);
  const Outcome o = run(fmt::format("report {} --no-figures --out {}", path("run"), path("report")));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, Not(HasSubstr("over seeds")));
}

TEST_F(Eval, ReportTellsRunsApartThatAreNoSeeds) {
  train("other", "--lr 0.1");
  train("seed", "--seed 2");
  for (const char* name : {"run", "other", "seed"}) {
    ASSERT_EQ(run(fmt::format("eval {} --data {} --threads 1 --lengths 24", path(name), path("data"))).code, 0);
  }
  const Outcome apart =
      run(fmt::format("report {} {} --no-figures --out {}", path("run"), path("other"), path("report")));
  EXPECT_THAT(apart.out, testing::AllOf(HasSubstr("(lr 0.001)"), HasSubstr("(lr 0.1)"), Not(HasSubstr("over seeds"))));
  const Outcome named =
      run(fmt::format("report calm={} wild={} --no-figures --out {}", path("run"), path("other"), path("report")));
  EXPECT_THAT(named.out, testing::AllOf(HasSubstr("calm "), HasSubstr("wild ")));
  const Outcome seeds =
      run(fmt::format("report {} {} --no-figures --out {}", path("run"), path("seed"), path("report")));
  EXPECT_THAT(seeds.out, HasSubstr("over seeds"));
}

}  // namespace
}  // namespace longshot
