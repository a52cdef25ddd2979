// Bytes of an input, decompressed as they are read: plain, gzip, zstd, xz, or standard input ("-"). The kind
// is known by the first bytes, not by the name.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/files.h"

namespace longshot {

// Called now and then during long work; throws to end it.
using StopCheck = std::function<void()>;

class TextInput {
 public:
  virtual ~TextInput() = default;
  // Fills as much of `out` as there is; less than its size only at the end.
  virtual size_t read(std::span<char> out) = 0;
  // Bytes of the file read so far, before decompression.
  virtual uint64_t raw_position() const = 0;
  // Passes over the next `bytes` bytes of text; throws if there are fewer.
  virtual void skip(uint64_t bytes, const StopCheck& check);
};

// A file. What is not one must be spooled first.
std::unique_ptr<TextInput> open_text(const fs::path& path);

// Copies a pipe, a device or standard input ("-") into a file. Calls progress(bytes so far) ten times a second or more often,
// also while nothing comes; it may throw.
void spool(const fs::path& from, const fs::path& to, const std::function<void(uint64_t)>& progress);

// Bytes of its text. Reads through the file if it is compressed.
uint64_t text_size(const fs::path& path, const StopCheck& check);

// Plain files and directories (all files below them, hidden ones left out), globs and "-", in the order
// given; the files of a directory or glob in the order of their names. Links are followed, but a directory is looked into once; the
// directories of `leave_out` are not. Throws if one of the inputs gives nothing.
std::vector<fs::path> expand_inputs(const std::vector<std::string>& inputs, const std::vector<fs::path>& leave_out,
                                    const StopCheck& check);

}  // namespace longshot
