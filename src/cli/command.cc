#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"

namespace longshot {
namespace {

std::atomic<bool> stop_{false};

void on_stop_signal(int signal) {
  if (stop_.exchange(true)) {
    (void)std::signal(signal, SIG_DFL);
    (void)std::raise(signal);
  }
}

void print_help(const CommandEntry& entry, const Command::Arguments& arguments, const Options& options) {
  fmt::print("longshot {}: {}\n\nusage: longshot {}{} [options]\n", entry.name, entry.summary, entry.name,
             arguments.name.empty() ? "" : " " + arguments.name + (arguments.most > 1 ? " .." : ""));
  std::string heading = "\1";
  for (const Option& o : options.all()) {
    if (o.group != heading) fmt::print("\n{}:\n", (heading = o.group).empty() ? "options" : heading);
    if (o.tables) {
      fmt::print("  {:<32} {}\n", fmt::format("[{}.NAME]", o.name), o.help);
      continue;
    }
    const std::string usage =
        o.type == "bool" ? fmt::format("--[no-]{}", o.name) : fmt::format("--{} {}", o.name, o.type);
    fmt::print("  {:<32} {}{}\n", usage, o.help, o.initial.empty() ? "" : fmt::format(" [{}]", o.initial));
  }
  fmt::print("\nevery command:\n  {:<32} {}\n  {:<32} {}\n  {:<32} {}\n", "--config FILE.toml",
             "options from a file; flags win over it", "--print-config", "show the effective options as TOML and end",
             "--help", "this text");
}

// Binds every Option to CLI11, which knows the ways to spell an argument.
void bind(CLI::App& app, Options& options) {
  for (const Option& o : options.all()) {
    if (o.tables) continue;
    if (o.type == "bool") {
      app.add_flag_function(fmt::format("--{},!--no-{}", o.name, o.name),
                            [&o](int64_t count) { o.set(count > 0 ? "true" : "false"); });
    } else if (o.type == "files") {
      app.add_option_function<std::vector<std::string>>(
             "--" + o.name, [&o](const std::vector<std::string>& values) { o.set(join_list(values)); })
          ->expected(1, -1);
    } else {
      app.add_option_function<std::string>("--" + o.name, [&o](const std::string& value) { o.set(value); })
          ->take_last();
    }
  }
}

[[noreturn]] void refuse_option(const CommandEntry& entry, const Options& options, const std::string& word) {
  std::vector<std::string> names{"help", "config", "print-config"};
  for (const Option& o : options.all()) names.push_back(o.name);
  const size_t letter = word.find_first_not_of('-');
  const std::string bare = word.substr(letter == std::string::npos ? 1 : letter);
  const std::string guess = nearest(bare.substr(0, bare.find('=')), names);
  fail_usage("longshot {}: unknown option {}.{} `longshot {} --help` lists all.", entry.name, word,
             guess.empty() ? "" : fmt::format(" Did you mean --{}?", guess), entry.name);
}

// Only rank 0 prints results.
void join_ranks(const CommandEntry& entry, Command& command, std::unique_ptr<Communicator>& world, double timeout) {
  require_usage(timeout > 0, "--rank-timeout must be positive, not {}", timeout);
  const Launch started = launch().value_or(Launch{});
  require_usage(command.works_in_ranks() || started.size == 1,
                "longshot {} runs in one process, but {} started {}: each would do all of the work", entry.name,
                started.by, started.size);
  world = all_ranks();
  require(world->is_root() || std::freopen("/dev/null", "w", stdout), "/dev/null cannot be opened");
  world->set_patience(timeout);
  if (!world->is_alone())
    (void)std::signal(SIGUSR1, on_stop_signal);  // mpirun hands it on, and does not end ranks after it
  command.work_in(*world);
}

}  // namespace

void flush_output() {
  if (std::fflush(stdout) != 0) fail("standard output: {}", std::strerror(errno));
}

bool stop_requested() { return stop_; }

void catch_stop_signals() {
  (void)std::signal(SIGINT, on_stop_signal);
  (void)std::signal(SIGTERM, on_stop_signal);
}

int run_command(const CommandEntry& entry, const std::vector<std::string>& argv, std::unique_ptr<Communicator>& world) {
  const std::unique_ptr<Command> command = entry.make();
  Options options;
  command->options(options);
  double rank_timeout = 300;
  if (command->works_in_ranks()) {
    options.group("under mpirun");
    options.add("rank-timeout", rank_timeout,
                "seconds without a word from another process, then all end; longer than a step or a batch takes");
  }
  const Command::Arguments arguments = command->arguments();

  bool help = false, print_config = false;
  std::string config;
  const auto separator =
      std::find(argv.begin(), argv.end(), "--");  // what follows is no option, whatever it looks like
  const std::vector<std::string> reversed(std::make_reverse_iterator(separator), argv.rend());  // CLI11 takes them so
  const auto parse = [&](CLI::App& app) {
    app.set_help_flag();
    app.allow_extras();
    app.add_flag("--help,-h", help);
    app.add_flag("--print-config", print_config);
    app.add_option("--config", config);
    bind(app, options);
    try {
      app.parse(std::vector<std::string>(reversed));
    } catch (const CLI::ParseError& e) {
      fail_usage("longshot {}: {}", entry.name, e.what());
    }
  };
  CLI::App app;
  parse(app);
  // Files stand below flags, implied options below files: load them, then let the flags speak again.
  const auto load_below_flags = [&](auto&& load) {
    load();
    if (!config.empty()) options.load_toml(config);
    CLI::App again;
    parse(again);
  };
  if (!config.empty()) load_below_flags([] {});
  if (!help) load_below_flags([&] { command->implied_options(options); });
  if (help) {
    print_help(entry, arguments, options);
    return 0;
  }
  for (const std::string& rest : app.remaining()) {
    if (rest.size() > 1 && rest[0] == '-') refuse_option(entry, options, rest);
    command->args.push_back(rest);
  }
  if (separator != argv.end()) command->args.insert(command->args.end(), separator + 1, argv.end());
  if (print_config) {
    fmt::print("{}", options.to_toml(true));
    return 0;
  }
  require_usage(command->args.size() >= arguments.least, "longshot {} needs {}: `longshot {} {} [options]`", entry.name,
                arguments.name, entry.name, arguments.name);
  require_usage(command->args.size() <= arguments.most, "longshot {}: '{}' is one argument too many", entry.name,
                command->args.empty() ? "" : command->args.back());
  join_ranks(entry, *command, world, rank_timeout);
  return command->run();
}

void show_json(const Json& value, int indent) { fmt::print("{}\n", printable_json(dump_json(value, indent))); }

}  // namespace longshot
