// Files: mapped for reading, written whole or not at all. Every message names the file and the system's reason.
// What stands in a file's place is looked at before it is opened: a pipe, a device or a directory is refused, not
// waited for. Reading follows symbolic links; writing does not follow one that stands in the file's own place.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/watch.h"

namespace longshot {

namespace fs = std::filesystem;

// A file mapped read-only. Moves; does not copy. An empty file gives an empty span. A file that another process
// cuts short while it is mapped raises SIGBUS where the missing part is read: the program says so and ends
// (cli/main.cc); a library user who fears that must catch the signal.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const fs::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  size_t size() const { return size_; }
  // Copies a part of bytes() by read(2): for what is wanted once, cheaper than mapping its pages, and a file that was cut
  // short is an Error.
  void copy(std::span<const std::byte> part, std::span<std::byte> out) const;

 private:
  fs::path path_;
  int fd_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A buffered writer. Throws at the first failed write; close() flushes to the disk and reports what destructors
// cannot. A file that is not closed stays as it is.
class OutputFile {
 public:
  // A new file. One of that name is unlinked, not overwritten: whoever has it open or mapped keeps it.
  explicit OutputFile(const fs::path& path);
  // Goes on behind the first `keep` bytes of a file that exists; what follows them is dropped.
  OutputFile(const fs::path& path, uint64_t keep);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void overwrite(uint64_t offset, const void* data, size_t size);  // for a header known only at the end
  uint64_t position() const { return position_; }
  void sync();  // everything written so far is on the disk
  void close();

 private:
  void flush();
  fs::path path_;
  int fd_ = -1;
  uint64_t position_ = 0;
  std::vector<char> buffer_;
};

// A text file whole; one larger than `limit` is refused before it is read.
std::string read_text(const fs::path& path, size_t limit = size_t{256} << 20);

// Writes to PATH.tmp, syncs and renames: readers see the old file or the new one, never a part. Writers of one file
// wait for each other; what a killed one left in PATH.tmp is written over.
void write_atomically(const fs::path& path, std::string_view text);

// One write at the end of the file; where it fails, the file is cut back to what it was.
void append_text(const fs::path& path, std::string_view text);

// Renames a finished file or directory into place and syncs the directory that holds it.
void publish(const fs::path& from, const fs::path& to);

// Throws if no file can be written there: no such directory, no right to, a directory or a device of that name.
void require_writable(const fs::path& path);
void sync_file(const fs::path& path);  // or directory: what was written to it is on the disk

void make_directories(const fs::path& path);
// A directory of our own inside another: a symbolic link in its place is refused.
void make_subdirectory(const fs::path& path);

// CRC-32 (zlib's) of bytes behind others of which it is known.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t before = 0);

// The same of bytes that come in pieces, 8 hex digits.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) { sum_ = crc32(bytes, sum_); }
  std::string text() const;

 private:
  uint32_t sum_ = 0;
};

// The same of a range of memory, and of a file, which is read for it.
std::string checksum(std::span<const std::byte> bytes);
std::string checksum(const MappedFile& file, const Watch& watch = {});

}  // namespace longshot
