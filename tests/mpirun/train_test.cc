// The program under mpirun: the bits of one process, and what happens when ranks die, hang or disagree.
#include "base/rng.h"
#include "mpirun/support.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class MpirunTrain : public Mpirun {
 protected:
  fs::path run(const std::string& name) const { return dir_ / name; }
  std::string train(const std::string& name, const std::string& options) const {
    return fmt::format(
        "train --data {} --out {} --layers 2 --dim 32 --heads 4 --length 16 --batch-tokens 256 --threads 1 "
        "--save-minutes "
        "0 {}",
        (dir_ / "data").string(), run(name).string(), options);
  }
  // The weights and moments of the last checkpoint.
  std::string saved(const std::string& name) const {
    const std::vector<int64_t> steps = checkpoint_steps(RunDir(run(name)));
    if (steps.empty()) return "nothing of " + name;
    const fs::path last = RunDir(run(name)).checkpoint(steps.back());
    return fmt::format("{} {}", steps.back(), read_text(last / "model.safetensors")) +
           read_text(last / "optimizer.safetensors");
  }
  bool has_checkpoint(const std::string& name) const { return !checkpoint_steps(RunDir(run(name))).empty(); }
};

TEST_F(MpirunTrain, GivesTheBitsOfOneProcess) {
  const std::pair<const char*, const char*> runs[] = {
      {"alibi", "--position alibi --alibi-learned --dropout 0.1 --attention-dropout 0.1 --micro-batch-tokens 48"},
      {"t5", "--position t5 --adaptive-cutoffs 20,100 --clip 0.01"},
      {"rotary", "--position rotary --precision bf16"},
      {"sinusoidal", "--position sinusoidal --document-mask --no-tied"},
      {"learned", "--position learned --optimizer nag --recompute"},
      {"none", "--position none --batch-tokens 208"},
  };
  for (const auto& [name, options] : runs) {
    SCOPED_TRACE(name);
    const std::string all = std::string(options) + " --steps 3";
    const auto on = [&](int count) { return fmt::format("{}-{}", name, count); };
    ASSERT_EQ(longshot_run(dir_, train(on(1), all)).code, 0);
    for (const int count : {2, 4}) {
      if (count == 2 && std::string(name) != "alibi") continue;  // time; threads stand for the rest
      const Outcome o = mpirun(ranks(count, train(on(count), all)));
      ASSERT_EQ(o.code, 0) << o.err;
      EXPECT_TRUE(saved(on(count)) == saved(on(1))) << count << " ranks";
      EXPECT_THAT(o.out, HasSubstr("trained 3 steps"));
      EXPECT_EQ(o.out.find("trained"), o.out.rfind("trained")) << "said once";
    }
  }
  EXPECT_EQ(position_methods().size(), std::size(runs));
}

TEST_F(MpirunTrain, GoesOnWithOtherRanks) {
  const std::string options = "--dropout 0.1 --warmup 2 --schedule constant --resume";
  ASSERT_EQ(longshot_run(dir_, train("constant", options + " --steps 9")).code, 0);
  EXPECT_EQ(mpirun(ranks(4, train("parts", options + " --steps 3"))).code, 0);
  EXPECT_EQ(longshot_run(dir_, train("parts", options + " --steps 5")).code, 0);
  EXPECT_EQ(mpirun(ranks(2, train("parts", options + " --steps 9"))).code, 0);
  EXPECT_TRUE(saved("parts") == saved("constant"));
}

TEST_F(MpirunTrain, KilledAtAnyMomentGoesOnToTheSameBits) {
  const char* asked = std::getenv("LONGSHOT_KILL_ROUNDS");
  const int64_t rounds = asked ? std::strtol(asked, nullptr, 10) : 5;
  const std::string options = "--steps 300 --save-every 7 --dropout 0.1 --resume";
  ASSERT_EQ(longshot_run(dir_, train("whole", options)).code, 0);
  int64_t killed = 0;
  for (int64_t round = 0; killed < rounds; ++round) {
    SCOPED_TRACE(round);
    ASSERT_LT(round, 10 * rounds) << "nearly all had come to their end: " << killed << " were killed";
    const auto draw = [&](uint64_t what, uint64_t below) {
      return random_bits(static_cast<uint64_t>(round), Stream::kTest, what) % below;
    };
    const int count = draw(1, 2) == 0 ? 2 : 4;
    const Started job(kMpirun + ranks(count, train("killed", options)), dir_ / "job.err");
    ASSERT_TRUE(job.has_ranks(static_cast<size_t>(count))) << read_text(dir_ / "job.err");
    std::this_thread::sleep_for(std::chrono::milliseconds(draw(2, 1200)));
    const std::vector<pid_t> pids = job.ranks();
    const bool hit = !pids.empty() && ::kill(pids[draw(3, pids.size())], SIGKILL) == 0;
    const bool broken_off = job.end() != 0;
    EXPECT_TRUE(hit || !broken_off) << read_text(dir_ / "job.err");
    killed += broken_off;
    if (!broken_off || draw(4, 3) == 0)
      fs::remove_all(run("killed"));  // from the start: what has ended cannot be killed
  }
  const Outcome last = mpirun(ranks(2, train("killed", options)));
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_TRUE(saved("killed") == saved("whole"));
}

TEST_F(MpirunTrain, RefusesRanksThatDisagree) {
  const Outcome o = mpirun(ranks(1, train("no", "--lr 0.25")) + " : " + ranks(1, train("no", "--lr 0.5")));
  EXPECT_NE(o.code, 0);
  EXPECT_THAT(o.err, AllOf(HasSubstr("the ranks disagree: --lr is 0.25 on rank 0"), HasSubstr("0.5 on rank 1")));
  EXPECT_EQ(o.err.find("disagree"), o.err.rfind("disagree")) << "said once";
  EXPECT_FALSE(fs::exists(run("no")));
  const Outcome other = mpirun(ranks(2, "info " + run("no").string()));
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.err, HasSubstr("longshot info runs in one process, but mpirun started 2"));
}

TEST_F(MpirunTrain, SaysWhatIsWrongOnOneHostBeforeTheRanksMeet) {
  const std::string fine = train("never", "--steps 3"), broken = fine + " --config " + (dir_ / "absent.toml").string();
  const Outcome one = mpirun(ranks(1, fine) + " : " + ranks(1, broken));
  EXPECT_NE(one.code, 0);
  EXPECT_THAT(one.err, AllOf(HasSubstr("longshot: rank 1: "), HasSubstr("absent.toml")));
  const Outcome all = mpirun(ranks(2, broken));
  EXPECT_NE(all.code, 0);
  EXPECT_THAT(all.err, AllOf(HasSubstr("absent.toml"), Not(HasSubstr("rank 1: ")))) << "said once";
}

TEST_F(MpirunTrain, AFullDiskOnRankZeroEndsAllAndHarmsNothing) {
  const std::string first = train("full", "--steps 4 --schedule constant --warmup 2"),
                    more = train("full", "--steps 8 --schedule constant --warmup 2 --resume");
  ASSERT_EQ(mpirun(ranks(2, first)).code, 0);
  const std::string before = saved("full");
  const Outcome o =
      mpirun(fmt::format("-n 1 sh -c 'ulimit -f 20; exec {} {}' : {}", LONGSHOT_PROGRAM, more, ranks(1, more)));
  EXPECT_NE(o.code, 0);
  EXPECT_THAT(o.err, AllOf(HasSubstr("rank 0 ("), HasSubstr("File too large")));
  EXPECT_TRUE(saved("full") == before);
  ASSERT_EQ(mpirun(ranks(2, more)).code, 0);
  ASSERT_EQ(longshot_run(dir_, train("whole", "--steps 8 --schedule constant --warmup 2")).code, 0);
  EXPECT_TRUE(saved("full") == saved("whole"));
}

TEST_F(MpirunTrain, AHungRankEndsTheJobInTime) {
  const Started job(kMpirun + ranks(2, train("hung", "--steps 1000000 --save-every 5 --rank-timeout 5")),
                    dir_ / "job.err");
  ASSERT_TRUE(job.has_ranks(2));
  ASSERT_TRUE(wait_until([&] { return has_checkpoint("hung"); }));
  const pid_t rank = job.ranks().back();
  ::kill(rank, SIGSTOP);
  EXPECT_NE(job.end(), 0);
  ::kill(rank, SIGKILL);
  EXPECT_THAT(read_text(dir_ / "job.err"),
              AllOf(HasSubstr("has heard nothing from rank "), HasSubstr("--rank-timeout")));
  EXPECT_TRUE(has_checkpoint("hung"));
}

TEST_F(MpirunTrain, SavesWhenItIsToldToStop) {
  // mpirun hands SIGUSR1 on. After Ctrl-C it kills its ranks, so soon as it is told here.
  for (const auto& [signal, settings] :
       {std::pair(SIGUSR1, ""), std::pair(SIGINT, "--mca odls_base_sigkill_timeout 2 ")}) {
    const std::string name = signal == SIGINT ? "interrupted" : "told";
    const Started job(kMpirun + std::string(settings) + ranks(2, train(name, "--steps 1000000")), dir_ / "job.err");
    ASSERT_TRUE(job.has_ranks(2));
    ASSERT_TRUE(wait_until([&] { return fs::exists(RunDir(run(name)).metrics()); }));
    job.signal(signal);
    job.end();
    EXPECT_TRUE(has_checkpoint(name)) << name;
    EXPECT_THAT(read_text(dir_ / "job.err"), HasSubstr("stopped and saved at step"));
  }
}

}  // namespace
}  // namespace longshot
