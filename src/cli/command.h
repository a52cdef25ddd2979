// A command of the program: its options, declared once, and what it does. One file per command; main.cc has the
// table and the only catch.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/options.h"
#include "dist/communicator.h"

namespace longshot {

class Command {
 public:
  virtual ~Command() = default;
  // Declares every option. Called once, before parsing.
  virtual void options(Options& o) = 0;
  virtual int run() = 0;  // the exit code
  // Sets options that stand below --config and the flags, e.g. those of a run to be resumed. Called after a first
  // parse.
  virtual void implied_options(Options& o) const { (void)o; }

  struct Arguments {   // what may follow the options, e.g. {"RUN", 1, 1}
    std::string name;  // "" takes none
    size_t least = 0, most = 0;
  };
  virtual Arguments arguments() const { return {}; }
  std::vector<std::string> args;  // filled by the parser

  // Whether mpirun may start several of it, which then share the work.
  virtual bool works_in_ranks() const { return false; }
  Communicator& world() const { return *world_; }
  void work_in(Communicator& world) { world_ = &world; }

 private:
  Communicator* world_ = nullptr;
};

struct CommandEntry {
  const char* name;
  const char* summary;
  std::unique_ptr<Command> (*make)();
};

// Parses argv[2..] and runs. Handles --help, --config FILE and --print-config for every command. `world` becomes the ranks
// that the command works in.
int run_command(const CommandEntry& entry, const std::vector<std::string>& argv, std::unique_ptr<Communicator>& world);

void show_json(const Json& value, int indent = -1);  // a line or lines that a terminal can be shown

void flush_output();  // what was printed to stdout is written; a full disk is an Error
// True once Ctrl-C or SIGTERM has come. The first asks for a clean end; the second ends at once.
bool stop_requested();
void catch_stop_signals();

}  // namespace longshot
