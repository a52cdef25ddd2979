// Ranks on hosts of their own, which are network namespaces: what a network does to them.
#include "mpirun/support.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Hosts : public Mpirun {
 protected:
  void SetUp() override {
    Mpirun::SetUp();
    if (!has_mpi()) return;
    const Outcome up = shell(dir_, hosts("up"));
    if (up.code != 0) GTEST_SKIP() << "NO NETWORK NAMESPACES HERE: what a cut link does is not tested. " << up.err;
  }
  void TearDown() override { shell(dir_, hosts("down")); }
  std::string hosts(const std::string& what) const {
    return fmt::format("{}/tests/mpirun/hosts.sh {} {}", LONGSHOT_SOURCE_DIR, name_, what);
  }
  const std::string name_ = fmt::format("ls{}", ::getpid());
};

TEST_F(Hosts, TrainWithTheBitsOfOneProcess) {
  const auto train = [&](const std::string& run) {
    return fmt::format(
        "train --data {} --out {} --layers 2 --dim 256 --heads 4 --length 16 --batch-tokens 256 --threads 1 "
        "--steps 3 --position rotary",
        path("data"), path(run));
  };
  ASSERT_EQ(longshot_run(dir_, train("one")).code, 0);
  const Outcome two = shell(dir_, hosts("run " + ranks(2, train("two"))));
  ASSERT_EQ(two.code, 0) << two.err;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(read_text(find_checkpoint(dir_ / "one") / file) == read_text(find_checkpoint(dir_ / "two") / file))
        << file;
  }
}

TEST_F(Hosts, ACutLinkIsNoticedAndNamed) {
  const std::string train = fmt::format(
      "train --data {} --out {} --layers 2 --dim 32 --heads 4 --length 16 --batch-tokens 256 --threads 1 --steps "
      "1000000 "
      "--save-every 5 --rank-timeout 2",
      path("data"), path("cut"));
  const Started job("exec " + hosts("run " + ranks(2, train)), dir_ / "job.err");
  ASSERT_TRUE(wait_until([&] { return !checkpoint_steps(RunDir(dir_ / "cut")).empty(); }))
      << read_text(dir_ / "job.err");
  ASSERT_EQ(shell(dir_, hosts("cut")).code, 0);
  const auto said = [&] { return read_text(dir_ / "job.err"); };
  EXPECT_TRUE(wait_until([&] { return said().find("--rank-timeout") != std::string::npos; }));
  EXPECT_THAT(said(),
              AllOf(HasSubstr(fmt::format("rank 0 ({}-a) has heard nothing from rank 1 ({}-b)", name_, name_))));
  // Both ranks end by themselves; mpirun, which cannot reach the other host, may not.
  EXPECT_TRUE(wait_until([&] { return shell(dir_, hosts("ranks")).out.empty(); }));
  shell(dir_, hosts("down"));
  job.end();
  EXPECT_FALSE(checkpoint_steps(RunDir(dir_ / "cut")).empty());
}

}  // namespace
}  // namespace longshot
