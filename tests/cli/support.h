// The program, started from a test.
#pragma once
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "train/support.h"

namespace longshot {

struct Outcome {
  int code;
  std::string out, err;
};

inline Outcome shell(const ScratchDir& dir, const std::string& command) {
  const std::string out = (dir / "stdout").string(), err = (dir / "stderr").string();
  const int status = std::system(fmt::format("({}) > {} 2> {}", command, out, err).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(out), read_text(err)};
}

inline Outcome longshot_run(const ScratchDir& dir, const std::string& arguments) {
  return shell(dir, std::string(LONGSHOT_PROGRAM) + " " + arguments);
}

inline pid_t start(const std::vector<std::string>& arguments) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<char*> argv;
    const std::string program = LONGSHOT_PROGRAM;
    argv.push_back(const_cast<char*>(program.c_str()));
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    if (!std::freopen("/dev/null", "w", stderr) || !std::freopen("/dev/null", "w", stdout)) std::_Exit(3);
    ::execv(argv[0], argv.data());
    std::_Exit(127);
  }
  return child;
}

inline int end_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// Starts the program, waits, sends a signal. Returns its exit status.
inline int run_and_signal(const std::vector<std::string>& arguments, std::chrono::milliseconds delay, int signal) {
  const pid_t child = start(arguments);
  std::this_thread::sleep_for(delay);
  ::kill(child, signal);
  return end_of(child);
}

// False if it is not so within a minute.
inline bool wait_until(const std::function<bool()>& holds) {
  for (int tries = 0; tries < 60'000; ++tries) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

inline std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += w + " ";
  return out;
}

// A command that runs a model.
class TrainedRunTest : public testing::Test {
 protected:
  void SetUp() override {
    write_token_set(dir_ / "data", 3000);
    const std::string train = fmt::format(
        "train --data {} --out {} --layers 1 --dim 16 --heads 2 --length 16 --steps 3 --batch-tokens 64 --threads 1",
        (dir_ / "data").string(), run());
    ASSERT_EQ(longshot_run(dir_, train).code, 0);
  }
  std::string run() const { return (dir_ / "run").string(); }

  ScratchDir dir_;
};

}  // namespace longshot
