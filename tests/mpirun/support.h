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

// A program that was started, and its children.
class Started {
 public:
  explicit Started(const std::string& command, const fs::path& err) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    (void)std::signal(SIGINT, SIG_DFL);
    if (!std::freopen(err.c_str(), "w", stderr) || !std::freopen("/dev/null", "w", stdout)) std::_Exit(3);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    std::_Exit(127);
  }
  // Its children that are the program, in the order they were started.
  std::vector<pid_t> ranks() const {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream stat(entry.path() / "stat");
      std::string pid, command, state;
      pid_t parent = 0;
      stat >> pid >> command >> state >> parent;
      if (parent == pid_ && command == "(longshot)") found.push_back(std::stoi(name));
    }
    std::ranges::sort(found);
    return found;
  }
  // False if it does not come to that within a minute.
  bool has_ranks(size_t count) const {
    return wait_until([&] { return ranks().size() == count; });
  }
  void signal(int number) const { ::kill(pid_, number); }
  // Its exit status. mpirun can lock itself up in its end (in PMIx_server_finalize) when a rank was killed while it connected.
  int end() const {
    int status = 0;
    while (!wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) {
      if (ranks().empty()) ::kill(pid_, SIGKILL);
    }
    return status;
  }

 private:
  pid_t pid_;
};

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
