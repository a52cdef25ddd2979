// Random sequences of commands, cut short by signals, against the same commands left alone: in the end weights, records and the
// list of files must be equal. A round that fails prints its seed and its commands and leaves its files.
//   torture --program LONGSHOT [--rounds N] [--seconds S] [--seed X] [--dir DIR] [--only train|compare|prepare]
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "torture/checks.h"
#include "torture/watch.h"

namespace torture {
namespace {

using Clock = std::chrono::steady_clock;
using Counts = std::map<std::pair<Place, std::string>, long>;  // by place and signal

// In memory where there is such a place: a round is mostly fsync elsewhere, and a killed process loses nothing that it wrote.
fs::path scratch() {
  const fs::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
}

Arguments joined(Arguments first, const Arguments& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

struct Settings {
  fs::path program, dir = scratch() / fmt::format("longshot-torture-{}", ::getpid());
  long rounds = 1'000'000'000, seconds = 60;
  uint64_t seed = 1;
  std::string only;  // a kind of round; empty: all
};

class Round {
 public:
  Round(const Settings& settings, uint64_t seed, Counts& counts)
      : settings_(settings), dice_(seed), counts_(counts), dir_(settings.dir / fmt::format("round-{}", seed)) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }

  // True if a signal landed while something was at work.
  bool run() {
    const long one = dice_.below(100);
    const std::string kind = !settings_.only.empty() ? settings_.only
                             : one < 12              ? "prepare"
                             : one < 24              ? "compare"
                                                     : "train";
    if (kind == "prepare") prepare_round();
    if (kind == "compare") compare_round();
    if (kind == "train") train_round();
    fs::remove_all(dir_);
    return landed_;
  }

  const std::vector<std::string>& commands() const { return commands_; }
  std::string log() const { return read(dir_ / "log"); }

 private:
  fs::path data() const { return settings_.dir / "data"; }

  int finish(const Arguments& arguments) {
    commands_.push_back(shell_text(settings_.program, arguments));
    Child child(settings_.program, arguments, dir_ / "log");
    return child.wait();
  }

  void succeed(const Arguments& arguments) {
    const int code = finish(arguments);
    if (code != 0) throw Fault(fmt::format("code {} of: {}", code, shell_text(settings_.program, arguments)));
  }

  // Starts a command and strikes it. True: it ended by itself.
  bool struck(const Arguments& arguments, const Watched& watched, const std::vector<Place>& places,
              const std::function<void()>& meanwhile) {
    static constexpr std::array<std::pair<int, const char*>, 3> kSignals{
        {{SIGKILL, "KILL"}, {SIGINT, "INT"}, {SIGTERM, "TERM"}}};
    const auto& [signal, name] = kSignals[static_cast<size_t>(dice_.chance(60) ? 0 : dice_.between(1, 2))];
    const Place place = dice_.one_of(places);
    const std::map<Place, long> looks{{Place::kStep, 120}, {Place::kPrepare, 20'000}, {Place::kEval, 20}};
    const long most = place == Place::kStep ? 2000 : place == Place::kRecord ? 50 : 1500;
    const Moment moment{.place = place,
                        .count = dice_.between(1, looks.contains(place) ? looks.at(place) : 3),
                        .delay = dice_.below(most),
                        .signal = signal,
                        .twice = signal != SIGKILL && dice_.chance(30),
                        .meanwhile = meanwhile};
    const size_t line = commands_.size();
    commands_.push_back(shell_text(settings_.program, arguments));
    Child child(settings_.program, arguments, dir_ / "log");
    const Struck hit = strike(child, watched, moment, dice_);
    if (hit.place != Place::kEnd) {
      commands_[line] += fmt::format("   # SIG{}{}: {}, code {}", name, moment.twice ? " twice" : "",
                                     kPlaceNames[static_cast<size_t>(hit.place)], hit.code);
      ++counts_[{hit.place, name}];
      landed_ = landed_ || hit.place != Place::kStart;
    }
    if (hit.code != 0 && hit.code != 1 && hit.code != 128 + signal) {
      throw Fault(fmt::format("code {} after SIG{}: {}", hit.code, name, commands_[line]));
    }
    return hit.code == 0;
  }

  // Struck up to `most` times, then left alone.
  void strike_and_succeed(const Arguments& arguments, const Watched& watched, const std::vector<Place>& places,
                          long most) {
    // A token set is whole once it has its name: struck after that, its command has nothing left to do.
    const auto prepared = [&] { return watched.prepares && fs::exists(watched.dir); };
    bool done = false;
    for (long left = dice_.between(1, most); left > 0 && !done; --left)
      done = struck(arguments, watched, places, [] {}) || prepared();
    if (!done) succeed(arguments);
  }

  // Options of a tiny training run.
  Arguments training(long steps) {
    const long length = dice_.one_of<long>({8, 12, 16}), sequences = dice_.between(1, 4);
    Arguments a{"--layers", "1", "--dim", "16", "--heads", dice_.one_of<std::string>({"1", "2", "4"})};
    const auto add = [&](const std::string& name, auto value) {
      a.push_back("--" + name);
      a.push_back(fmt::format("{}", value));
    };
    add("length", length);
    add("batch-tokens", length * sequences);
    if (dice_.chance(30)) add("micro-batch-tokens", length);
    add("steps", steps);
    add("warmup", dice_.below(4));
    add("optimizer", dice_.one_of<std::string>({"adamw", "nag", "sgd"}));
    add("schedule", dice_.one_of<std::string>({"constant", "linear", "cosine"}));
    if (dice_.chance(40)) add("dropout", "0.1");
    if (dice_.chance(20)) add("attention-dropout", "0.1");
    if (dice_.chance(30)) a.emplace_back("--document-mask");
    if (dice_.chance(20)) a.emplace_back("--recompute");
    if (dice_.chance(20)) add("adaptive-cutoffs", "50,100");
    add("log-every", dice_.one_of<long>({1, 1, 3, 7}));
    add("save-every", dice_.one_of<long>({0, 1, 3, 5, 10}));
    if (dice_.chance(30)) add("save-minutes", "0.00005");  // every few milliseconds
    add("seed", dice_.between(1, 1000));
    add("threads", dice_.between(1, 2));
    return a;
  }

  void train_round() {
    const long steps = dice_.between(10, 80), keep = dice_.between(1, 3);
    Arguments options = training(steps);
    for (const std::string& word :
         {std::string("--position"), dice_.one_of<std::string>({"alibi", "sinusoidal", "rotary", "t5", "none"}),
          std::string("--eval-every"), fmt::format("{}", dice_.one_of<long>({0, 2, 7})), std::string("--keep"),
          fmt::format("{}", keep), std::string("--eval-tokens"), std::string("60")})
      options.push_back(word);
    if (dice_.chance(30)) options.insert(options.end(), {"--eval-lengths", "8,40"});
    const fs::path twin = dir_ / "twin", run = dir_ / "run";
    const auto command = [&](const fs::path& out, const Arguments& more) {
      return joined({"train", "--data", data().string(), "--out", out.string()}, more);
    };
    succeed(command(twin, options));
    Arguments next = command(run, options);
    bool done = false;
    for (long left = dice_.between(1, 5); left > 0 && !done; --left) {
      const auto intrude = [&] {  // a second writer is sent away
        if (dice_.chance(10) && fs::exists(run / ".lock") && finish(command(run, {"--resume"})) == 0)
          throw Fault("two processes write " + run.string());
      };
      done = struck(next, {.dir = run, .last_step = steps, .mapped = {}},
                    {Place::kStep, Place::kStep, Place::kRecord, Place::kCheckpoint, Place::kCheckpoint, Place::kFile},
                    intrude);
      const std::vector<long> saved = checkpoints(run);
      if (!saved.empty() && dice_.chance(15)) evaluate(run, dice_.chance(50));
      next = command(run, {"--resume"});
      if (!fs::exists(run / "config.toml")) next = command(run, options);
      if (!saved.empty() && dice_.chance(25)) {
        next = command(run, {"--resume-step", fmt::format("{}", dice_.one_of(saved))});
        done = false;
      }
    }
    if (!done) succeed(next);
    expect_same_run(twin, run, keep);
    evaluate(twin, false);
    evaluate(run, dice_.chance(30));
    expect_same_last_record(twin / "evals.jsonl", run / "evals.jsonl");
    if (dice_.chance(20)) report(run);
  }

  void evaluate(const fs::path& run, bool cut_short) {
    const Arguments command{"eval",    run.string(), "--data", data().string(), "--lengths",
                            "8,16,32", "--threads",  "1",      "--json",        (dir_ / "eval.json").string()};
    const Watched watched{.dir = run, .mapped = "valid.tokens"};
    if (!cut_short || !struck(command, watched, {Place::kEval, Place::kFile}, [] {})) succeed(command);
  }

  void report(const fs::path& run) {
    const Arguments command{"report", run.string(), "--out", (dir_ / "page").string(), "--no-figures"};
    fs::create_directories(dir_ / "page");
    const Watched watched{.dir = dir_ / "page", .mapped = "libnss_none"};
    if (!struck(command, watched, {Place::kFile}, [] {})) succeed(command);
    if (!half_written(dir_ / "page").empty()) throw Fault("a report leaves half-written files");
  }

  void compare_round() {
    const long steps = dice_.between(6, 30);
    Arguments options = training(steps);
    for (const std::string& word :
         {std::string("--positions"),
          dice_.one_of<std::string>({"alibi", "alibi,rotary", "none,t5", "sinusoidal,alibi"}), std::string("--seeds"),
          dice_.one_of<std::string>({"1", "1,2"}), std::string("--test-lengths"), std::string("16,32"),
          std::string("--eval-tokens"), std::string("96")})
      options.push_back(word);
    const auto seed = std::ranges::find(options, "--seed");
    options.erase(seed, seed + 2);
    const auto command = [&](const fs::path& out) {
      return joined({"compare", "--data", data().string(), "--out", out.string()}, options);
    };
    const fs::path twin = dir_ / "twin", out = dir_ / "out";
    succeed(command(twin));
    strike_and_succeed(command(out), {.dir = out, .last_step = steps, .mapped = {}},
                       {Place::kStep, Place::kStep, Place::kRecord, Place::kCheckpoint, Place::kFile}, 5);
    expect_same_comparison(twin, out);
  }

  void prepare_round() {
    const Arguments options{"--tokenizer",  dice_.one_of<std::string>({"byte", "word", "bpe"}),
                            "--vocab-size", "400",
                            "--split",      "0.9,0.05,0.05",
                            "--split-by",   "position",
                            "--threads",    fmt::format("{}", dice_.between(1, 2))};
    const auto command = [&](const fs::path& out) {
      return joined({"prepare", (settings_.dir / "long.txt").string(), "--out", out.string()}, options);
    };
    const fs::path twin = dir_ / "twin", out = dir_ / "out";
    succeed(command(twin));
    strike_and_succeed(command(out), {.dir = out, .mapped = {}, .prepares = true}, {Place::kPrepare}, 4);
    expect_same_files(twin, out);
    if (!half_written(dir_).empty()) throw Fault("prepare leaves something half-written");
  }

  const Settings& settings_;
  Dice dice_;
  Counts& counts_;
  fs::path dir_;
  std::vector<std::string> commands_;
  bool landed_ = false;
};

// A text with documents to learn from, and one long enough that preparing it takes a while.
void make_data(const Settings& settings) {
  const auto write = [&](const char* name, int lines) {
    std::ofstream out(settings.dir / name);
    for (int i = 0; i < lines; ++i) {
      if (i % 7 == 0) out << "----\n";
      out << "Line " << i * 7919 % 1009 << ": the river runs to the sea, and yet the sea is not full " << i % 13
          << ".\n";
    }
  };
  write("text.txt", 100);
  write("long.txt", 40'000);
  const Arguments arguments{"prepare",
                            (settings.dir / "text.txt").string(),
                            "--split",
                            "0.7,0.2,0.1",
                            "--split-by",
                            "position",
                            "--tokenizer",
                            "byte",
                            "--document-separator",
                            "----",
                            "--out",
                            (settings.dir / "data").string()};
  if (Child(settings.program, arguments, settings.dir / "prepare.log").wait() != 0)
    throw std::runtime_error(read(settings.dir / "prepare.log"));
}

void print(const Counts& counts, long rounds, long counted) {
  fmt::print("{} rounds, in {} of them a signal landed while something was at work. Signals by place:\n", rounds,
             counted);
  for (size_t p = 0; p + 1 < std::size(kPlaceNames); ++p) {
    fmt::print("  {:<34}", kPlaceNames[p]);
    for (const char* signal : {"KILL", "INT", "TERM"}) {
      const auto found = counts.find({static_cast<Place>(p), signal});
      fmt::print(" {:>6} {}", found == counts.end() ? 0 : found->second, signal);
    }
    fmt::print("\n");
  }
}

Settings parse(int argc, char** argv) {
  Settings s;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--program")
      s.program = value;
    else if (name == "--dir")
      s.dir = value;
    else if (name == "--rounds")
      s.rounds = std::stol(value), s.seconds = 1'000'000'000;
    else if (name == "--seconds")
      s.seconds = std::stol(value);
    else if (name == "--seed")
      s.seed = std::stoull(value);
    else if (name == "--only")
      s.only = value;
    else
      throw std::invalid_argument("unknown option " + name);
  }
  if (s.program.empty() || argc % 2 == 0)
    throw std::invalid_argument("torture --program LONGSHOT [--rounds N] [--seconds S] [--seed X] [--dir DIR]");
  return s;
}

int torture_all(const Settings& settings) {
  fs::create_directories(settings.dir);
  ::setenv("OMP_WAIT_POLICY", "passive", 0);  // threads that spin would hold up the watcher
  make_data(settings);
  Counts counts;
  long rounds = 0, counted = 0;
  const auto end = Clock::now() + std::chrono::seconds(settings.seconds);
  for (; rounds < settings.rounds && Clock::now() < end; ++rounds) {
    const uint64_t seed = settings.seed + static_cast<uint64_t>(rounds);
    Round round(settings, seed, counts);
    try {
      counted += round.run();
    } catch (const std::exception& e) {
      fmt::print("FAILED: {}\nseed {} (again: --seed {} --rounds 1); files in {}\n  {}\nThe end of its output:\n{}\n",
                 e.what(), seed, seed, settings.dir.string(), fmt::join(round.commands(), "\n  "),
                 round.log().substr(std::max<size_t>(round.log().size(), 2000) - 2000));
      print(counts, rounds + 1, counted);
      return 1;
    }
  }
  print(counts, rounds, counted);
  fs::remove_all(settings.dir);
  return 0;
}

}  // namespace
}  // namespace torture

int main(int argc, char** argv) {
  try {
    return torture::torture_all(torture::parse(argc, argv));
  } catch (const std::exception& e) {
    fmt::print(stderr, "torture: {}\n", e.what());
    return 2;
  }
}
