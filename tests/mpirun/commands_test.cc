// Commands whose work several processes share, as mpirun starts them.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/records.h"
#include "mpirun/support.h"
#include "run/run_dir.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class MpirunCommands : public Mpirun {
 protected:
  // Everything a comparison has found, without what depends on when and where it was.
  Json results(const std::string& out) const {
    Json all = without_times(read_json(dir_ / out / "results.json"));
    for (const char* name : {"command", "date"}) all.erase(name);
    return all;
  }
  static Json without_times(const Json& json) {
    if (!json.is_structured()) return json;
    Json rest = json.is_array() ? Json::array() : Json::object();
    for (const auto& [name, part] : json.items()) {
      if (json.is_array()) rest.push_back(without_times(part));
      const bool timed = name.find("second") != std::string::npos || name.find("memory") != std::string::npos;
      if (json.is_object() && !timed) rest[name] = without_times(part);
    }
    return rest;
  }
  // The process that is at a model of the comparison `shared`; 0: none.
  pid_t holder(const std::string& model) const {
    const fs::path lock = dir_ / "shared" / "runs" / ("." + model + ".lock");
    const std::string held = fs::exists(lock) ? read_text(lock) : "";
    return held.starts_with("longshot ") ? std::stoi(held.substr(9)) : 0;
  }
  std::string compare(const std::string& out, int steps = 1500) const {
    return fmt::format(
        "compare --data {} --out {} --positions alibi,none --seeds 1,2 --length 16 --test-lengths 16,32 --layers 1 "
        "--dim 16 "
        "--heads 2 --steps {} --batch-tokens 64 --speed-rounds 0 --threads 1",
        path("data"), path(out), steps);
  }
};

TEST_F(MpirunCommands, EvalHasTheNumbersOfOneProcess) {
  ASSERT_EQ(
      longshot_run(dir_, fmt::format("train --data {} --out {} --layers 1 --dim 16 --heads 2 --length 16 --steps 3 "
                                     "--batch-tokens 64 --threads 1",
                                     path("data"), path("run")))
          .code,
      0);
  const auto command = [&](const std::string& json, const std::string& losses) {
    return fmt::format("eval {} --data {} --lengths 16,64 --batch-tokens 64 --json {} --losses {}", path("run"),
                       path("data"), path(json), path(losses));
  };
  ASSERT_EQ(longshot_run(dir_, command("one.json", "one.csv")).code, 0);
  const Outcome shared = mpirun(ranks(3, command("shared.json", "shared.csv")));
  ASSERT_EQ(shared.code, 0) << shared.err;
  EXPECT_EQ(read_text(dir_ / "shared.csv"), read_text(dir_ / "one.csv"));
  const Json one = read_json(dir_ / "one.json"), of_ranks = read_json(dir_ / "shared.json");
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(of_ranks["results"][i]["loss"], one["results"][i]["loss"]);
  EXPECT_EQ(of_ranks["per_position"], one["per_position"]);
  EXPECT_EQ(std::ranges::count(read_text(dir_ / "run" / "evals.jsonl"), '\n'), 2);  // written once each time
}

// The last rank has three of its tokens.
TEST_F(MpirunCommands, EvalSharesAWindowOfManyTokens) {
  write_token_set(dir_ / "long", 4 * 12291);
  ASSERT_EQ(
      longshot_run(dir_, fmt::format("train --data {} --out {} --layers 2 --dim 16 --heads 2 --length 16 --steps 3 "
                                     "--batch-tokens 64 --threads 1",
                                     path("long"), path("run")))
          .code,
      0);
  const auto command = [&](const std::string& losses, const std::string& more = "") {
    return fmt::format("eval {} --data {} --lengths 16,12291 --score all --losses {}{}", path("run"), path("long"),
                       path(losses), more);
  };
  ASSERT_EQ(longshot_run(dir_, command("one.csv")).code, 0);
  const Outcome shared = mpirun(ranks(4, command("shared.csv")));
  ASSERT_EQ(shared.code, 0) << shared.err;
  EXPECT_THAT(shared.out, HasSubstr("4 ranks shared each window"));
  EXPECT_TRUE(read_text(dir_ / "shared.csv") == read_text(dir_ / "one.csv"));
  const Outcome pairs = mpirun(ranks(4, command("pairs.csv", " --ranks-per-window 2")));
  ASSERT_EQ(pairs.code, 0) << pairs.err;
  EXPECT_TRUE(read_text(dir_ / "pairs.csv") == read_text(dir_ / "one.csv"));
  const Outcome three = mpirun(ranks(4, command("three.csv", " --ranks-per-window 3")));
  EXPECT_EQ(three.code, 2);
  EXPECT_THAT(three.err, HasSubstr("--ranks-per-window 3 must divide the number of ranks, which is 4"));
}

TEST_F(MpirunCommands, PrepareWritesTheBytesOfOneProcess) {
  std::string files;
  for (int i = 0; i < 40; ++i) {
    const fs::path file = dir_ / fmt::format("text-{}.txt", i);
    write_atomically(file, fmt::format("Chapter {}\nIn the beginning was {} and {}.\n", i, i * i, i));
    files += file.string() + " ";
  }
  const auto command = [&](const std::string& out) {
    return fmt::format("prepare --train {} --tokenizer word --out {}", files, path(out));
  };
  const Outcome one = longshot_run(dir_, command("one"));
  ASSERT_EQ(one.code, 0) << one.err;
  const Outcome shared = mpirun(ranks(2, command("shared")));
  ASSERT_EQ(shared.code, 0) << shared.err;
  for (const char* name : {"train.tokens", "tokenizer.dict.txt", "meta.json"})
    EXPECT_EQ(read_text(dir_ / "shared" / name), read_text(dir_ / "one" / name)) << name;
}

TEST_F(MpirunCommands, CompareGoesOnAfterAWorkerWasKilled) {
  ASSERT_EQ(longshot_run(dir_, compare("one")).code, 0);
  std::thread killer([&] {
    const bool both = wait_until([&] { return holder("alibi-L16-s1") > 0 && holder("alibi-L16-s2") > 0; });
    if (both) ::kill(holder("alibi-L16-s2"), SIGKILL);
  });
  const Outcome killed = mpirun(ranks(2, compare("shared")));
  killer.join();
  EXPECT_NE(killed.code, 0);  // the other rank may finish its model, or all, before mpirun ends it
  const Outcome again = mpirun(ranks(2, compare("shared")));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(results("shared"), results("one"));
  EXPECT_EQ(results("one")["runs"].size(), 4u);
  EXPECT_TRUE(fs::exists(dir_ / "shared" / "report.html"));
}

TEST_F(MpirunCommands, CompareDoesNotWaitForAHungWorker) {
  const Started job(kMpirun + ranks(2, compare("shared", 1'000'000) + " --rank-timeout 2"), dir_ / "job.err");
  ASSERT_TRUE(wait_until([&] { return holder("alibi-L16-s1") > 0 && holder("alibi-L16-s2") > 0; }));
  const pid_t hung = holder("alibi-L16-s2");
  ::kill(hung, SIGSTOP);
  EXPECT_NE(job.end(), 0);
  ::kill(hung, SIGKILL);
  EXPECT_THAT(read_text(dir_ / "job.err"), HasSubstr("has heard nothing from rank "));
}

TEST_F(MpirunCommands, CompareInGroupsHasTheBitsOfOneProcess) {
  constexpr int kSteps = 20;
  ASSERT_EQ(longshot_run(dir_, compare("one", kSteps)).code, 0);
  const Outcome shared = mpirun(ranks(4, compare("shared", kSteps) + " --ranks-per-model 2 --rank-timeout 20"));
  ASSERT_EQ(shared.code, 0) << shared.err;
  EXPECT_EQ(results("shared"), results("one"));
  EXPECT_EQ(results("one")["runs"].size(), 4u);
  for (const char* name : {"alibi-L16-s1", "alibi-L16-s2", "none-L16-s1", "none-L16-s2"}) {
    const auto weights = [&](const std::string& out) {
      return read_text(RunDir(dir_ / out / "runs" / name).checkpoint(kSteps) / "model.safetensors");
    };
    EXPECT_TRUE(weights("shared") == weights("one")) << name;
  }
}

TEST_F(MpirunCommands, CompareRefusesGroupsThatDoNotFit) {
  const Outcome four = mpirun(ranks(4, compare("out") + " --ranks-per-model 3"));
  EXPECT_EQ(four.code, 2);
  EXPECT_THAT(four.err, HasSubstr("--ranks-per-model 3 must divide the number of ranks, which is 4"));
  const Outcome one = longshot_run(dir_, compare("out") + " --ranks-per-model 2");
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr("--ranks-per-model 2 must divide the number of ranks, which is 1"));
}

TEST_F(MpirunCommands, RanksThatWereToldOtherThingsAreRefused) {
  const auto prepare = [&](int seed) {
    return fmt::format("prepare {} --tokenizer byte --seed {} --out {}", path("text.txt"), seed, path("set"));
  };
  write_atomically(dir_ / "text.txt", "some text\n");
  const Outcome outcome = mpirun(ranks(1, prepare(1)) + " : " + ranks(1, prepare(2)));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the ranks disagree: --seed"), HasSubstr("rank 1")));
}

}  // namespace
}  // namespace longshot
