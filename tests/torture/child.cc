#include "torture/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace torture {

Child::Child(const fs::path& program, const Arguments& arguments, const fs::path& log) {
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  const int output = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing outlives the torture itself
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(output);
  if (pid_ < 0) throw std::runtime_error(fmt::format("no process for {}", words[0]));
}

Child::~Child() {
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::take(int status) {
  ended_ = true;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool Child::ended() {
  int status = 0;
  if (!ended_ && ::waitpid(pid_, &status, WNOHANG) == pid_) take(status);
  return ended_;
}

bool Child::freeze() {
  if (ended()) return false;
  ::kill(pid_, SIGSTOP);
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);
  if (WIFSTOPPED(status)) return true;
  take(status);
  return false;
}

void Child::send(int signal) const { ::kill(pid_, signal); }
void Child::go_on() const { ::kill(pid_, SIGCONT); }

bool Child::maps(const std::string& file_name) const {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid_));
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with("/" + file_name)) return true;
  return false;
}

int Child::wait() {
  const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(4);
  while (!ended()) {
    if (std::chrono::steady_clock::now() > patience) throw std::runtime_error("a command does not end");
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return code_;
}

std::string shell_text(const fs::path& program, const Arguments& arguments) {
  return fmt::format("{} {}", program.string(), fmt::join(arguments, " "));
}

}  // namespace torture
