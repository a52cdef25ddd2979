#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/records.h"
#include "formats/scratch.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names_in(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string filled(char c, size_t bytes) { return std::string(bytes, c); }

TEST(MappedFile, GivesTheBytesAndMoves) {
  const ScratchDir dir;
  MappedFile file(dir.write("f", "abc"));
  EXPECT_EQ(file.text(), "abc");
  const MappedFile other = std::move(file);
  EXPECT_EQ(other.text(), "abc");
  EXPECT_EQ(file.size(), 0u);  // NOLINT(bugprone-use-after-move): what is left of it
  EXPECT_EQ(MappedFile(dir.write("empty", "")).size(), 0u);
  fs::create_symlink("f", dir / "link");
  EXPECT_EQ(MappedFile(dir / "link").text(), "abc");
}

TEST(MappedFile, CopiesPartsAndTellsACutFile) {
  const ScratchDir dir;
  const MappedFile file(dir.write("f", "0123456789"));
  const auto copied = [&](size_t at, size_t count) {
    std::string out(count, '?');
    file.copy(file.bytes().subspan(at, count), std::as_writable_bytes(std::span(out)));
    return out;
  };
  EXPECT_EQ(copied(0, 10), "0123456789");
  EXPECT_EQ(copied(7, 3), "789");
  EXPECT_EQ(copied(10, 0), "");
  fs::resize_file(dir / "f", 8);
  EXPECT_EQ(copied(2, 6), "234567");
  EXPECT_THAT(error_of([&] { copied(7, 3); }), HasSubstr("ends at byte 8, but it had 10 when it was opened"));
}

// Every way to open, on every kind of thing that is not a file. None waits: a pipe has no other end here.
TEST(Files, WhatIsNotARegularFileIsRefusedBeforeItIsOpened) {
  const ScratchDir dir;
  fs::create_directory(dir / "directory");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", dir / "link");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (dir / "socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  struct Case {
    fs::path path;
    const char* kind;
  };
  for (const Case& c :
       {Case{dir / "pipe", "a pipe"}, Case{dir / "directory", "a directory"}, Case{dir / "link", "a pipe"},
        Case{dir / "socket", "a socket"}, Case{"/dev/zero", "a device"}}) {
    EXPECT_THAT(error_of([&] { const MappedFile file(c.path); }), AllOf(HasSubstr(c.path.string()), HasSubstr(c.kind)));
    EXPECT_THAT(error_of([&] { read_text(c.path); }), HasSubstr(c.kind));
    EXPECT_THAT(error_of([&] { read_records(c.path); }), HasSubstr(c.kind));
    EXPECT_THAT(error_of([&] { append_text(c.path, "x"); }), HasSubstr("not a regular file"));
    EXPECT_THAT(error_of([&] { OutputFile(c.path, 0); }), HasSubstr("not a regular file"));
  }
  ::close(listener);
  ASSERT_EQ(::mkfifo((dir / "f.tmp").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { write_atomically(dir / "f", "x"); }), HasSubstr("f.tmp: cannot create: it is a pipe"));
}

TEST(ReadText, RefusesWhatIsLargerThanTheLimitUnread) {
  const ScratchDir dir;
  EXPECT_EQ(read_text(dir.write("f", "four"), 4), "four");
  EXPECT_THAT(error_of([&] { read_text(dir / "f", 3); }), AllOf(HasSubstr("4 bytes"), HasSubstr("the 3 that")));
  fs::resize_file(dir / "f", uint64_t{5} << 30);  // sparse
  EXPECT_THAT(error_of([&] { read_text(dir / "f"); }), HasSubstr("5368709120 bytes"));
}

TEST(ReadText, ReadsFilesThatDoNotKnowTheirSize) { EXPECT_THAT(read_text("/proc/self/status"), HasSubstr("Name:")); }

TEST(WriteAtomically, ReplacesAndLeavesNothing) {
  const ScratchDir dir;
  write_atomically(dir / "f", "one");
  write_atomically(dir / "f", "two");
  EXPECT_EQ(read_text(dir / "f"), "two");
  dir.write("f.tmp", "the long rest of a writer that was killed");
  write_atomically(dir / "f", "three");
  EXPECT_EQ(read_text(dir / "f"), "three");
  EXPECT_THAT(names_in(dir / ""), ElementsAre("f"));
}

TEST(WriteAtomically, DoesNotFollowLinks) {
  const ScratchDir dir;
  dir.write("victim", "precious");
  fs::create_symlink("victim", dir / "f.tmp");
  EXPECT_THAT(error_of([&] { write_atomically(dir / "f", "x"); }), HasSubstr("f.tmp: cannot create: it is a symbolic"));
  fs::remove(dir / "f.tmp");
  fs::create_hard_link(dir / "victim", dir / "f.tmp");
  EXPECT_THAT(error_of([&] { write_atomically(dir / "f", "x"); }), HasSubstr("has 2 names"));
  fs::remove(dir / "f.tmp");
  fs::create_symlink("victim", dir / "f");
  write_atomically(dir / "f", "x");
  EXPECT_FALSE(fs::is_symlink(dir / "f"));
  EXPECT_EQ(read_text(dir / "victim"), "precious");
}

TEST(WriteAtomically, WritersAtOnceLeaveOneWholeFile) {
  const ScratchDir dir;
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 20; ++i) write_atomically(dir / "f", filled(static_cast<char>('a' + w), 50'000));
    });
  }
  bool torn = false;
  for (int i = 0; i < 200; ++i) {
    if (!fs::exists(dir / "f")) continue;
    const std::string text = read_text(dir / "f");
    torn |= text != filled(text[0], 50'000);
  }
  for (std::thread& t : writers) t.join();
  EXPECT_FALSE(torn);
  EXPECT_THAT(names_in(dir / ""), ElementsAre("f"));
}

// A limit on the size of files fails as a full disk does: write() takes a part, then nothing.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    (void)std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(WriteAtomically, AFullDiskLeavesTheOldFile) {
  const ScratchDir dir;
  write_atomically(dir / "f", "old");
  {
    const FullDisk full(1000);
    EXPECT_THAT(error_of([&] { write_atomically(dir / "f", filled('x', 5000)); }), HasSubstr("f.tmp: cannot write"));
  }
  EXPECT_EQ(read_text(dir / "f"), "old");
  EXPECT_THAT(names_in(dir / ""), ElementsAre("f"));
}

TEST(AppendText, AFullDiskLeavesWhatWasThere) {
  const ScratchDir dir;
  append_text(dir / "f", "line\n");
  {
    const FullDisk full(1000);
    EXPECT_THAT(error_of([&] { append_text(dir / "f", filled('x', 5000)); }), HasSubstr("f: cannot append 5000"));
  }
  EXPECT_EQ(read_text(dir / "f"), "line\n");
}

TEST(AppendText, DoesNotFollowLinks) {
  const ScratchDir dir;
  dir.write("victim", "precious");
  fs::create_symlink("victim", dir / "f");
  fs::create_symlink("nowhere", dir / "g");
  EXPECT_THAT(error_of([&] { append_text(dir / "f", "x"); }), HasSubstr("a symbolic link"));
  EXPECT_THAT(error_of([&] { append_record(dir / "f", {{"a", 1}}); }), HasSubstr("a symbolic link"));
  EXPECT_THAT(error_of([&] { append_record(dir / "g", {{"a", 1}}); }), HasSubstr("a symbolic link"));
  EXPECT_EQ(read_text(dir / "victim"), "precious");
  EXPECT_FALSE(fs::exists(dir / "nowhere"));
}

TEST(OutputFile, ReplacesTheNameNotTheFile) {
  const ScratchDir dir;
  dir.write("victim", "precious");
  fs::create_symlink("victim", dir / "soft");
  fs::create_hard_link(dir / "victim", dir / "hard");
  const MappedFile mapped(dir / "hard");
  for (const char* name : {"soft", "hard", "new"}) {
    OutputFile out(dir / name);
    out.write("written");
    out.overwrite(0, "W", 1);
    EXPECT_EQ(out.position(), 7u);
    out.close();
    EXPECT_EQ(read_text(dir / name), "Written");
  }
  EXPECT_EQ(read_text(dir / "victim"), "precious");
  EXPECT_EQ(mapped.text(), "precious");
}

TEST(OutputFile, GoesOnBehindWhatIsKept) {
  const ScratchDir dir;
  dir.write("f", "keep this, not that");
  OutputFile out(dir / "f", 9);
  out.write(filled('x', 3 << 20));
  out.close();
  EXPECT_EQ(read_text(dir / "f"), "keep this" + filled('x', 3 << 20));
  EXPECT_THAT(error_of([&] { OutputFile(dir.write("g", "short"), 6); }),
              AllOf(HasSubstr("byte 6"), HasSubstr("5 bytes")));
  fs::create_symlink("g", dir / "link");
  EXPECT_THAT(error_of([&] { OutputFile(dir / "link", 0); }), HasSubstr("a symbolic link"));
  EXPECT_EQ(read_text(dir / "g"), "short");
}

TEST(MakeSubdirectory, RefusesALinkInItsPlace) {
  const ScratchDir dir;
  fs::create_directory(dir / "elsewhere");
  fs::create_directory_symlink("elsewhere", dir / "link");
  dir.write("file", "");
  make_subdirectory(dir / "new");
  make_subdirectory(dir / "new");
  EXPECT_TRUE(fs::is_directory(dir / "new"));
  EXPECT_THAT(error_of([&] { make_subdirectory(dir / "link"); }), HasSubstr("a symbolic link is in the way"));
  EXPECT_THAT(error_of([&] { make_subdirectory(dir / "file"); }), HasSubstr("a file of that name is in the way"));
  EXPECT_THAT(error_of([&] { make_subdirectory(dir / "none/new"); }), HasSubstr("No such file"));
}

TEST(Checksum, OfManyPiecesIsThatOfTheWhole) {
  std::vector<std::byte> bytes((size_t{48} << 20) + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  Checksum whole;
  whole.add(bytes);
  EXPECT_EQ(checksum(bytes), whole.text());
}

TEST(Checksum, IsZlibs) { EXPECT_EQ(checksum(std::as_bytes(std::span("123456789", 9))), "cbf43926"); }

}  // namespace
}  // namespace longshot
