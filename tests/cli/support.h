// The program, started from a test.
#pragma once
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
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

// Starts the program, waits, sends a signal. Returns its exit status.
inline int run_and_signal(const std::vector<std::string>& arguments, std::chrono::milliseconds delay, int signal) {
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
  std::this_thread::sleep_for(delay);
  ::kill(child, signal);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

inline std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += w + " ";
  return out;
}

}  // namespace longshot
