// What reaches the terminal, and how the program ends, whatever the files are.
#include "formats/safetensors.h"
#include "formats/torch_builder.h"
#include "memory_limit.h"
#include "references.h"
#include "support.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Terminal, NoControlCharacterOfANameReachesIt) {
  const ScratchDir dir;
  const Outcome missing = shell(dir, fmt::format("{} info \"$(printf 'a\\033[31mb')\"", LONGSHOT_PROGRAM));
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("a\\x1b[31mb"), Not(HasSubstr("\x1b"))));

  const std::string name =
                        "\x1b]0;owned\x07\xC2\x9B"
                        "1m",
                    file = (dir / "x.pt").string();
  dir.write("x.pt",
            build::torch_zip(build::dict({{name, build::text(name)},
                                          {"t", build::tensor(build::storage("FloatStorage", "0", 1), 0, {}, {})}}),
                             {{"0", build::floats({1})}}));
  const Outcome info = longshot_run(dir, "info " + file);
  EXPECT_EQ(info.code, 0) << info.err;
  EXPECT_THAT(info.out,
              AllOf(HasSubstr("\\x1b]0;owned\\x07\\u009b1m"), Not(HasSubstr("\x1b")), Not(HasSubstr("\xC2\x9B"))));
}

// Names with an escape sequence and a byte that is not UTF-8: every command shows them, none lets them through.
class HostileNames : public testing::Test {
 protected:
  HostileNames() { write_token_set(dir_ / "data", 3000); }
  void clean(const std::string& arguments) const {
    const Outcome o =
        shell(dir_, fmt::format("PATH=/nowhere {} {}", LONGSHOT_PROGRAM, arguments));  // no gnuplot: a note
    EXPECT_EQ(o.code, 0) << arguments << "\n" << o.err;
    EXPECT_THAT(o.out + o.err, AllOf(HasSubstr("[31m"), Not(HasSubstr("\x1b")), Not(HasSubstr("\xE9")))) << arguments;
  }
  ScratchDir dir_;
  const std::string evil_ = "\x1b[31m\xE9", run_ = (dir_ / evil_).string(), data_ = (dir_ / "data").string();
  const std::string small_ = "--layers 1 --dim 16 --heads 2 --length 24 --steps 2 --save-every 1 --threads 1";
};

TEST_F(HostileNames, OfRuns) {
  clean(fmt::format("train --data {} --out '{}' {}", data_, run_, small_));
  clean(fmt::format("train --resume-step 1 --out '{}'", run_));
  clean(fmt::format("eval '{}' --data {} --lengths 24 --threads 1", run_, data_));
  clean(fmt::format("info '{}'", run_));
  clean(fmt::format("info --json '{}'", run_));
  clean(fmt::format("report '{}' --no-figures", run_));
  const std::string other = (dir_ / "other").string();
  ASSERT_EQ(longshot_run(dir_, fmt::format("train --data {} --out {} --lr 0.1 {}", data_, other, small_)).code, 0);
  ASSERT_EQ(longshot_run(dir_, fmt::format("eval {} --data {} --lengths 24 --threads 1", other, data_)).code, 0);
  clean(fmt::format("report {} '{}={}'", other, evil_, run_));
  clean(fmt::format("report '{}' {}", run_, other));
  clean(fmt::format("compare --data {} --out '{}' --positions alibi {}", data_, run_ + "2", small_));
}

TEST_F(HostileNames, OfDataAndTensors) {
  fs::copy_file(dir_ / "data/valid.tokens", dir_ / ("data/" + evil_ + ".tokens"));
  std::string text;
  for (int i = 0; i < 100; ++i) text += evil_;
  write_token_set(run_, text);
  for (const std::string& set : {data_, run_}) {
    clean(fmt::format("info '{}'", set));
    clean(fmt::format("info --json '{}'", set));
  }
  const std::vector<float> numbers{1};
  write_safetensors(dir_ / "x.safetensors",
                    std::vector<NamedTensor>{{"\x1b[31m", DType::kF32, {1}, std::as_bytes(std::span(numbers))}});
  clean(fmt::format("info {}", (dir_ / "x.safetensors").string()));
}

TEST(Terminal, JsonSpellsOutWhatItWouldAct) {
  const ScratchDir dir;
  const std::vector<float> numbers{1};
  write_safetensors(dir / "x.safetensors", std::vector<NamedTensor>{{"\xC2\x9B"
                                                                     "31m",
                                                                     DType::kF32,
                                                                     {1},
                                                                     std::as_bytes(std::span(numbers))}});
  const Outcome info = longshot_run(dir, "info --json " + (dir / "x.safetensors").string());
  EXPECT_THAT(info.out, AllOf(HasSubstr("\"\\u009b31m\""), Not(HasSubstr("\xC2\x9B"))));
}

TEST_F(HostileNames, OfCheckpointsOfOthers) {
  fs::copy_file(kFixtures / "checkpoints/alibi.pt", run_ + ".pt");
  clean(fmt::format("info '{}.pt'", run_));
  clean(fmt::format("import '{0}.pt' --out '{0}'", run_));
  dir_.write(evil_ + ".pt", build::torch_zip(build::dict({{"model", build::dict({})}, {"args", build::dict({})}})));
  clean(fmt::format("info '{}.pt'", run_));  // and why it cannot be imported
}

// 90,000 recalls of one long name: gigabytes, once.
TEST(Terminal, InfoOfAFileWhoseNamesRepeatIsShort) {
  const ScratchDir dir;
  std::string items = build::text(std::string(40'000, 'k')) + build::keep(1) + "0" +
                      build::tensor(build::storage("FloatStorage", "0", 1), 0, {}, {}) + build::keep(2) + "0}(";
  for (int i = 0; i < 90'000; ++i) items += build::recall(1) + build::recall(2);
  dir.write("x.pt", build::torch_zip(items + "u", {{"0", build::floats({1})}}));
  for (const char* flag : {"", " --json"}) {
    const Outcome info =
        shell(dir, fmt::format("{} {} info {}{}", with_memory(1500), LONGSHOT_PROGRAM, (dir / "x.pt").string(), flag));
    EXPECT_EQ(info.code, 0) << info.err;
    EXPECT_LT(info.out.size(), 20u << 20);
    EXPECT_THAT(info.out, HasSubstr("left"));
  }
}

// A mapped file that becomes shorter: the kernel sends SIGBUS. Sent here once the program has said it will catch it.
TEST(Terminal, ASignalForAMissingPageIsAMessage) {
  const ScratchDir dir;
  const std::string err = (dir / "stderr").string();
  const auto of_sanitizer = std::signal(SIGBUS, SIG_DFL);  // else the child would catch it before it is the program
  const pid_t child = ::fork();
  if (child == 0) {
    if (!std::freopen(err.c_str(), "w", stderr) || !std::freopen("/dev/null", "w", stdout)) std::_Exit(3);
    for (const char* sanitizer : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) ::setenv(sanitizer, "handle_sigbus=0", 1);
    ::execl(LONGSHOT_PROGRAM, LONGSHOT_PROGRAM, "bench", nullptr);
    std::_Exit(127);
  }
  const auto caught = [&] {
    const std::string status = read_text(fmt::format("/proc/{}/status", child));
    const size_t at = status.find("SigCgt:");
    return at != std::string::npos && (std::stoull(status.substr(at + 7), nullptr, 16) >> (SIGBUS - 1) & 1);
  };
  EXPECT_TRUE(wait_until(caught));
  (void)std::signal(SIGBUS, of_sanitizer);
  ::kill(child, SIGBUS);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(read_text(err), HasSubstr("a file became shorter while it was being read"));
}

}  // namespace
}  // namespace longshot
