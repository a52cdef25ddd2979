#include <fmt/format.h>

#include "cli/command.h"
#include "position/position.h"

namespace longshot {
namespace {

class PositionsCommand : public Command {
 public:
  void options(Options&) override {}
  int run() override {
    for (const PositionMethod* method : position_methods()) {
      fmt::print("{:<11} {}\n", method->name, method->summary);
      for (const PositionOption& o : method->options) {
        const std::string flag = fmt::format("--{}-{}", method->name, o.name);
        fmt::print("            {:<22} {}{}\n", flag, o.help, o.initial.empty() ? "" : fmt::format(" [{}]", o.initial));
      }
    }
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> make_positions_command() { return std::make_unique<PositionsCommand>(); }

}  // namespace longshot
