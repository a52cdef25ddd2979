// Bytes of an input, decompressed as they are read: plain, gzip, zstd, xz, or standard input ("-"). The kind
// is known by the first bytes, not by the name.
#pragma once
#include <memory>
#include <span>

#include "base/files.h"

namespace longshot {

class TextInput {
 public:
  virtual ~TextInput() = default;
  // Fills as much of `out` as there is; less than its size only at the end.
  virtual size_t read(std::span<char> out) = 0;
  // Bytes of the file read so far, before decompression.
  virtual uint64_t raw_position() const = 0;
  // Passes over the next `bytes` bytes of text; throws if there are fewer.
  virtual void skip(uint64_t bytes);
};

std::unique_ptr<TextInput> open_text(const fs::path& path);

// Bytes of its text. Reads through the file if it is compressed.
uint64_t text_size(const fs::path& path);

// Plain files and directories (all files below them, hidden ones left out), globs and "-", in the order
// given; the files of a directory or glob in the order of their names. Throws if one of them gives nothing.
std::vector<fs::path> expand_inputs(const std::vector<std::string>& inputs);

}  // namespace longshot
