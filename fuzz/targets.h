// What is fuzzed: every reader of files that others made. Each takes any bytes and must end normally or with
// an Error.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "data/data_bin.h"
#include "data/json_lines.h"
#include "data/token_file.h"
#include "data/tokenizers.h"
#include "formats/fairseq.h"
#include "formats/safetensors.h"

namespace longshot::fuzz {

inline void check(bool ok) {
  if (!ok) __builtin_trap();
}

// The process's own scratch file.
inline fs::path scratch(const std::string& name) {
  return fs::temp_directory_path() / ("longshot-fuzz-" + std::to_string(::getpid()) + name);
}

// Without OutputFile's sync to the disk: there are thousands of these.
inline void write(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline void read_all(const TokenFile& file) {
  std::vector<int32_t> ids(static_cast<size_t>(file.size()));
  file.read(0, ids);
  for (const int32_t id : ids) check(id >= 0 && id < file.vocab_size());
}

inline void jsonl(std::string_view bytes) { json_text(bytes, "text", "input"); }

inline void use(const Tokenizer& tokenizer) {
  const std::string text = "It's a test:  \xE6\x97\xA5\xE6\x9C\xAC 12.5\n\xFF end";
  const std::vector<int32_t> ids = tokenizer.encode(text);
  for (const int32_t id : ids) check(id >= 0 && id < tokenizer.vocab_size());
  check(tokenizer.start_id() >= 0 && tokenizer.start_id() < tokenizer.vocab_size());
  tokenizer.decode(ids);
  check(tokenizer.cut(text) <= text.size());
}

inline void tokenizer_json(std::string_view bytes) { use(*hf_tokenizer(std::string(bytes), "input")); }
inline void dict(std::string_view bytes) { use(*word_tokenizer(std::string(bytes), "input")); }

inline void token_file(std::string_view bytes) {
  write(scratch(".tokens"), bytes);
  read_all(TokenFile(scratch(".tokens")));
}

// Two bytes: the length of the .idx; the .idx; the .bin.
inline void data_bin(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const size_t idx = std::min<size_t>(
      static_cast<unsigned char>(bytes[0]) | static_cast<size_t>(static_cast<unsigned char>(bytes[1])) << 8,
      bytes.size() - 2);
  write(scratch(".idx"), bytes.substr(2, idx));
  write(scratch(".bin"), bytes.substr(2 + idx));
  static const auto words = word_tokenizer("the 2\ncat 1\nsat 1\nmat 1\n", "dict");
  read_all(open_data_bin(scratch(""), *words));
}

// A checkpoint as far as it is one: its tensors are read whole.
inline void torch_file(std::string_view bytes) {
  write(scratch(".pt"), bytes);
  const TorchFile file(scratch(".pt"));
  const FairseqCheckpoint checkpoint(file);
  checkpoint.verify();
  for (const FairseqTensor& t : checkpoint.tensors()) {
    std::vector<float> out(static_cast<size_t>(*element_count(t.shape)));
    copy_to_float(t, out);
  }
}

inline void safetensors(std::string_view bytes) {
  write(scratch(".safetensors"), bytes);
  const Safetensors file(scratch(".safetensors"));
  for (const NamedTensor& t : file.tensors()) {
    if (!is_floating(t.dtype)) continue;
    std::vector<float> out(t.bytes.size() / dtype_size(t.dtype));
    file.read(t.name, out);
  }
}

using Target = void (*)(std::string_view);
inline const std::map<std::string, Target>& targets() {
  static const std::map<std::string, Target> all{{"jsonl", jsonl},
                                                 {"tokenizer_json", tokenizer_json},
                                                 {"dict", dict},
                                                 {"token_file", token_file},
                                                 {"data_bin", data_bin},
                                                 {"torch_file", torch_file},
                                                 {"safetensors", safetensors}};
  return all;
}

// An Error is an answer; anything else is a finding.
inline void run(Target target, std::string_view bytes) {
  try {
    target(bytes);
  } catch (const Error&) {
  }
}

}  // namespace longshot::fuzz
