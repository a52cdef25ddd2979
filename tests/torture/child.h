// A command of the program in a process of its own, watched from outside and stopped where it stands.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace torture {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

class Child {
 public:
  // Output of both kinds goes to the end of `log`.
  Child(const fs::path& program, const Arguments& arguments, const fs::path& log);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool ended();   // without waiting
  bool freeze();  // SIGSTOP, and waits until it stands still; false: it had ended
  void send(int signal) const;
  void go_on() const;
  bool maps(const std::string& file_name) const;  // has it mapped a file of this name?

  // The exit code; 128 + N after signal N. Throws if it takes longer than a minute.
  int wait();

 private:
  void take(int status);

  pid_t pid_ = -1;
  bool ended_ = false;
  int code_ = 0;
};

std::string shell_text(const fs::path& program, const Arguments& arguments);

}  // namespace torture
