#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/printable.h"
#include "base/version.h"
#include "cli/command.h"

namespace longshot {

std::unique_ptr<Command> make_prepare_command();
std::unique_ptr<Command> make_train_command();
std::unique_ptr<Command> make_eval_command();
std::unique_ptr<Command> make_compare_command();
std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_score_command();
std::unique_ptr<Command> make_serve_command();
std::unique_ptr<Command> make_report_command();
std::unique_ptr<Command> make_import_command();
std::unique_ptr<Command> make_export_command();
std::unique_ptr<Command> make_info_command();
std::unique_ptr<Command> make_positions_command();
std::unique_ptr<Command> make_bench_command();

namespace {

constexpr CommandEntry kCommands[] = {
    {"prepare", "text to tokens", make_prepare_command},
    {"train", "train one model", make_train_command},
    {"eval", "perplexity at any lengths", make_eval_command},
    {"compare", "train several position methods, test them long, write the report", make_compare_command},
    {"generate", "text that continues a prompt", make_generate_command},
    {"score", "what every token of a text costs a model", make_score_command},
    {"serve", "completions over HTTP, a playground, runs while they train", make_serve_command},
    {"report", "one HTML page and figure files from runs", make_report_command},
    {"import", "another program's model as a run: a Hugging Face directory, a GGUF file, a fairseq checkpoint",
     make_import_command},
    {"export", "a run as files of other programs", make_export_command},
    {"info", "what is in a run, a checkpoint, a token set or a model file", make_info_command},
    {"bench", "this machine's peak, and a training step's share of it", make_bench_command},
    {"positions", "the position methods, one line each", make_positions_command},
};

void print_usage() {
  fmt::print("longshot {}: train short, test long\n\nusage: longshot COMMAND [options]\n\n", version());
  for (const CommandEntry& entry : kCommands) fmt::print("  {:<11} {}\n", entry.name, entry.summary);
  fmt::print("\n`longshot COMMAND --help` lists a command's options with their defaults.\n");
}

int run(const std::vector<std::string>& argv, std::unique_ptr<Communicator>& world) {
  if (argv.empty() || argv[0] == "--help" || argv[0] == "-h" || argv[0] == "help") {
    print_usage();
    return argv.empty() ? 2 : 0;
  }
  if (argv[0] == "--version") {
    fmt::print("longshot {}\n", version());
    return 0;
  }
  std::vector<std::string> names;
  for (const CommandEntry& entry : kCommands) {
    if (argv[0] == entry.name) return run_command(entry, {argv.begin() + 1, argv.end()}, world);
    names.emplace_back(entry.name);
  }
  fail_usage("unknown command '{}'.{} `longshot --help` lists all.", argv[0], did_you_mean(argv[0], names));
}

// Files are mapped. Where another process cuts one short meanwhile, the kernel has nothing to show and sends this.
extern "C" void on_missing_page(int) {
  constexpr std::string_view kMessage =
      "longshot: a file became shorter while it was being read. Is it being written?\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  ::_exit(1);
}

// What the error says may hold names from files: whatever they contain, a terminal shall not act on it.
void print_error(std::string_view what) {
  (void)std::fflush(stdout);
  fmt::print(stderr, "longshot: {}\n", printable(what, true));
}

// Before the ranks have met each sees for itself what is wrong. When rank 0 has said it mpirun ends the others, a second later;
// who is still there then has something of its own to say.
void print_error_of_rank(int rank, const std::string& what) {
  constexpr auto kPatience = std::chrono::seconds(3);
  if (rank == 0) return print_error(what);
  std::this_thread::sleep_for(kPatience);
  print_error(fmt::format("rank {}: {}", rank, what));
}

// Ends with `code`. What all ranks say is said once; what only some say ends the others too.
int end(std::unique_ptr<Communicator>& world, const std::string& what, int code) {
  constexpr double kSeconds = 2;  // for the others to come to the same end
  const std::optional<Launch> started = launch();
  if (!world && started && started->size > 1) {
    print_error_of_rank(started->rank, what);
    return code;
  }
  if (!world || world->is_alone() || world->all_end_with(what, kSeconds)) {
    if (!world || world->is_root()) print_error(what);
    world.reset();
    return code;
  }
  print_error(fmt::format("{}: {}", world->name(world->rank()), what));
  world->abort(code);
  return code;
}

}  // namespace
}  // namespace longshot

int main(int argc, char** argv) {
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error of write(), with a message
  (void)std::signal(SIGBUS, longshot::on_missing_page);
  std::unique_ptr<longshot::Communicator> world;
  try {
    const int code = longshot::run({argv + 1, argv + argc}, world);
    longshot::flush_output();
    return code;
  } catch (const longshot::Error& e) {
    return longshot::end(world, e.what(), e.kind() == longshot::Error::Kind::kUsage ? 2 : 1);
  } catch (const std::bad_alloc&) {
    return longshot::end(world, "out of memory. Use a smaller model, batch or length.", 1);
  } catch (const longshot::fs::filesystem_error& e) {
    return longshot::end(world, fmt::format("{}: {}", e.path1().string(), e.code().message()), 1);
  } catch (const std::exception& e) {
    return longshot::end(world, e.what(), 1);
  }
}
