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
      const std::unique_ptr<PositionOptions> own = method->options();
      Options options;
      own->fields(options);
      for (const Option& o : options.all()) {
        fmt::print("            {:<22} {}{}\n", "--" + o.name, o.help,
                   o.initial.empty() ? "" : fmt::format(" [{}]", o.initial));
      }
    }
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> make_positions_command() { return std::make_unique<PositionsCommand>(); }

}  // namespace longshot
