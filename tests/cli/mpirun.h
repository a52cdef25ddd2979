// The program, started several times by mpirun.
#pragma once
#include "cli/support.h"
#include "dist/communicator.h"

namespace longshot {

// Root may use it here, ranks may share cores, and each may use all of them.
inline std::string mpirun(int ranks) {
  return fmt::format(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -q --bind-to none --oversubscribe -n {} {}",
      ranks, LONGSHOT_PROGRAM);
}

inline Outcome longshot_ranks(const ScratchDir& dir, int ranks, const std::string& arguments) {
  return shell(dir, mpirun(ranks) + " " + arguments);
}

// Tests of real ranks: not where the program was built without MPI.
class RanksTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpi()) GTEST_SKIP() << "this longshot was built without MPI (libopenmpi-dev)";
    if (std::system("mpirun --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no mpirun (openmpi-bin)";
    write_token_set(dir_ / "data", 4000);
  }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }

  ScratchDir dir_;
};

}  // namespace longshot
