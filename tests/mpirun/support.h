// The program, started several times by mpirun.
#pragma once
#include "cli/support.h"
#include "dist/communicator.h"

namespace longshot {

// As root and on few cores mpirun must be told that this is meant. Open MPI is built without sanitizers: what it leaks or
// hands between its threads is not ours to judge.
inline constexpr const char* kMpirun =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0 "
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1 exec mpirun --bind-to none --oversubscribe ";

inline std::string ranks(int count, const std::string& arguments) {
  return fmt::format("-n {} {} {}", count, LONGSHOT_PROGRAM, arguments);
}

// Real ranks, and a small text for them.
class Mpirun : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpi()) GTEST_SKIP() << "built without MPI: nothing about many machines is tested";
    write_token_set(dir_ / "data", 3000);
  }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  Outcome mpirun(const std::string& what) const { return shell(dir_, kMpirun + what); }

  ScratchDir dir_;
};

}  // namespace longshot
