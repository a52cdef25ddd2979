// The program itself: exit codes, standard input, a full disk, info.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>

#include "base/records.h"
#include "data/token_file.h"
#include "helpers.h"
#include "memory_limit.h"

namespace longshot {
namespace {

using testing::HasSubstr;

struct Outcome {
  int code;
  std::string output;  // stdout and stderr
};

// Through bash, in which $L is the program.
Outcome shell(const std::string& command) {
  const std::string line = fmt::format("L={}; ({}) 2>&1", LONGSHOT_PROGRAM, command);
  FILE* pipe = ::popen(fmt::format("bash -c '{}'", line).c_str(), "r");
  Outcome run{-1, ""};
  std::array<char, 4096> block{};
  while (const size_t n = std::fread(block.data(), 1, block.size(), pipe)) run.output.append(block.data(), n);
  run.code = WEXITSTATUS(::pclose(pipe));
  return run;
}

TEST(PrepareCommand, StandardInputAndPipes) {
  const TemporaryDir dir;
  const std::string out = (dir / "set").string();
  const Outcome one = shell(fmt::format("echo one two | $L prepare --train - --tokenizer word --out {}", out));
  EXPECT_EQ(one.code, 0) << one.output;
  EXPECT_THAT(one.output, HasSubstr("3 tokens"));
  const Outcome two = shell(fmt::format(
      "echo \"{{\\\"text\\\": \\\"one two\\\"}}\" | gzip | $L prepare --train - --out {} --overwrite", out));
  EXPECT_EQ(two.code, 0) << two.output;
  EXPECT_THAT(two.output, HasSubstr("7 bytes"));
  const Outcome three =
      shell(fmt::format("$L prepare --train <(echo one) --valid <(echo two three) --out {} --overwrite", out));
  EXPECT_EQ(three.code, 0) << three.output;
  EXPECT_FALSE(fs::exists(out + "/pipe-0"));
}

TEST(PrepareCommand, WrongUsageIsTwoAndFailureIsOne) {
  EXPECT_EQ(shell("$L prepare").code, 2);
  EXPECT_EQ(shell("$L prepare --train x --out y --tokenizr byte").code, 2);
  const Outcome absent = shell("$L prepare --train /absent/file --out /tmp/longshot-never");
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.output, HasSubstr("/absent/file: no such file"));
}

TEST(PrepareCommand, InfoCutsLongTokens) {
  const TemporaryDir dir;
  const std::string text = dir.file("a.txt", std::string(60'000, 'x') + " y"), out = (dir / "set").string();
  EXPECT_EQ(shell(fmt::format("$L prepare --train {} --tokenizer word --out {}", text, out)).code, 0);
  for (const char* form : {"", "--json"}) {
    const Outcome info = shell(fmt::format("$L info {} {}", out, form));
    EXPECT_EQ(info.code, 0);
    EXPECT_THAT(info.output, HasSubstr(std::string(80, 'x') + "..."));
    EXPECT_LT(info.output.size(), 3000u);
  }
}

TEST(PrepareCommand, NoSpaceLeftLeavesNothingUnderTheFinalName) {
  const TemporaryDir dir;
  const std::string text = dir.file("a.txt", odd_text(1, 300'000)), out = (dir / "set").string();
  // A limit on file sizes stands for a full disk.
  const Outcome run = shell(fmt::format(
      "trap \"\" XFSZ; ulimit -f 500; $L prepare --train {} --allow-binary --tokenizer byte --out {}", text, out));
  EXPECT_EQ(run.code, 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("cannot write"));
  EXPECT_FALSE(fs::exists(out));
  const Outcome again = shell(fmt::format("$L prepare --train {} --allow-binary --tokenizer byte --out {}", text, out));
  EXPECT_EQ(again.code, 0) << again.output;
}

TEST(PrepareCommand, SizesAreWrittenWithoutExponents) {
  const TemporaryDir dir;
  const std::string text = dir.file("a.txt", std::string(1'023'000, 'x'));
  const Outcome run =
      shell(fmt::format("$L prepare --train {} --tokenizer byte --out {}", text, (dir / "set").string()));
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("999 KiB of 999 KiB"));
}

// Killed at random moments by the system itself.
TEST(PrepareCommand, KilledAndStartedAgainItGivesTheSameBytes) {
  const TemporaryDir dir;
  const std::string text = dir.file("a.txt", odd_text(3, 1'500'000));
  const std::string command = fmt::format(
      "$L prepare {} --allow-binary --tokenizer bpe --vocab-size 300 --threads 1 --out {}/", text, dir.path().string());
  ASSERT_EQ(shell(command + "twin").code, 0);
  int killed = 0;
  for (int i = 0; i < 6; ++i) {
    const Outcome run = shell(fmt::format("timeout -s KILL 0.{:02} {}set", 3 + i * 11, command));
    killed += run.code == 137;
    if (run.code == 0) break;
  }
  EXPECT_GT(killed, 0);
  const Outcome last = shell(command + "set");
  EXPECT_TRUE(last.code == 0 || last.output.find("--overwrite") != std::string::npos) << last.output;
  for (const char* name : {"train.tokens", "valid.tokens", "test.tokens", "tokenizer.json", "meta.json"})
    EXPECT_EQ(read_text(dir / "set" / name), read_text(dir / "twin" / name)) << name;
  EXPECT_FALSE(fs::exists(dir / "set.partial"));
}

TEST(InfoCommand, AHugeVocabularyOfAHeaderTakesNoMemory) {
  const TemporaryDir dir;
  TokenWriter writer(dir / "x.tokens", {.tokenizer_hash = 0, .vocab_size = 400'000'000, .start_id = 0});
  writer.append(std::vector<int32_t>{7, 399'999'999, 7});
  writer.finish();
  const Outcome info = shell(fmt::format("{} $L info {}", with_memory(2000), (dir / "x.tokens").string()));
  EXPECT_EQ(info.code, 0) << info.output;
  EXPECT_THAT(info.output, HasSubstr("7 (2) 399999999 (1)"));
}

TEST(InfoCommand, ChangedIdsAreFoundByTheDataHash) {
  const TemporaryDir dir;
  const std::string path = (dir / "x.tokens").string();
  TokenWriter writer(path, {.tokenizer_hash = 0, .vocab_size = 300, .start_id = 0});
  writer.append(std::vector<int32_t>{7, 8, 9});
  writer.finish();
  EXPECT_THAT(shell("$L info " + path).output, HasSubstr(fmt::format("{:016x}", TokenFile(path).data_hash())));
  std::string bytes = read_text(path);
  bytes[72] = 1;
  write_atomically(path, bytes);
  const Outcome info = shell("$L info " + path);
  EXPECT_EQ(info.code, 1);
  EXPECT_THAT(info.output, HasSubstr("damaged"));
}

}  // namespace
}  // namespace longshot
