#include "data/text_input.h"

#include <fcntl.h>
#include <glob.h>
#include <lzma.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

#include "base/error.h"

namespace longshot {
namespace {

constexpr size_t kRawBuffer = 1 << 20;

// The file itself, with a look at its first bytes.
class RawFile {
 public:
  explicit RawFile(const fs::path& path) : name_(path.string()) {
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not make us wait
    require(fd_ >= 0, "{}: cannot open: {}", name_, std::strerror(errno));
    struct stat status {};
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(fd_);
      fail("{}: {}", name_, S_ISDIR(status.st_mode) ? "is a directory" : "not a file");
    }
    head_.resize(16);
    head_.resize(read_some(head_));
  }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  ~RawFile() { ::close(fd_); }

  const std::string& name() const { return name_; }
  std::string_view head() const { return {head_.data(), head_.size()}; }
  uint64_t position() const { return position_; }

  size_t read(std::span<char> out) {
    const size_t from_head = std::min(out.size(), head_.size() - head_used_);
    std::copy_n(head_.begin() + static_cast<ptrdiff_t>(head_used_), from_head, out.begin());
    head_used_ += from_head;
    const size_t n = from_head + read_some(out.subspan(from_head));
    position_ += n;
    return n;
  }

  bool skip(uint64_t bytes) {
    struct stat status {};
    const uint64_t target = position_ + bytes;
    if (::fstat(fd_, &status) != 0 || static_cast<uint64_t>(status.st_size) < target) return false;
    if (::lseek(fd_, static_cast<off_t>(target), SEEK_SET) < 0) return false;
    head_used_ = head_.size();
    position_ = target;
    return true;
  }

 private:
  size_t read_some(std::span<char> out) {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::read(fd_, out.data() + done, out.size() - done);
      if (n < 0 && errno == EINTR) continue;
      require(n >= 0, "{}: cannot read: {}", name_, std::strerror(errno));
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

  std::string name_;
  int fd_ = -1;
  std::vector<char> head_;
  size_t head_used_ = 0;
  uint64_t position_ = 0;
};

class PlainInput : public TextInput {
 public:
  explicit PlainInput(std::unique_ptr<RawFile> file) : file_(std::move(file)) {}
  size_t read(std::span<char> out) override { return file_->read(out); }
  uint64_t raw_position() const override { return file_->position(); }
  void skip(uint64_t bytes, const StopCheck& check) override {
    if (!file_->skip(bytes)) TextInput::skip(bytes, check);
  }

 private:
  std::unique_ptr<RawFile> file_;
};

// What the decompressors share: compressed bytes in, text out, several streams one behind the other.
class CompressedInput : public TextInput {
 public:
  explicit CompressedInput(std::unique_ptr<RawFile> file) : file_(std::move(file)), raw_(kRawBuffer) {}
  uint64_t raw_position() const override { return file_->position(); }
  size_t read(std::span<char> out) override {
    size_t done = 0;
    while (done < out.size()) {
      if (input_.empty() && !ended_) {
        input_ = std::span(raw_).first(file_->read(raw_));
        ended_ = input_.empty();
      }
      const size_t before = input_.size();
      const size_t n = step(input_, ended_, out.subspan(done));
      done += n;
      if (ended_ && n == 0) {
        require(!open(), "{}: the compressed data ends in the middle. Was the copy interrupted?", file_->name());
        break;
      }
      require(n > 0 || input_.size() < before || before == 0,
              "{}: the decompressor makes no headway; the file is damaged", file_->name());
    }
    return done;
  }

 protected:
  // Decompresses from the front of `in` (and shortens it) into `out`; returns the bytes made.
  virtual size_t step(std::span<char>& in, bool ended, std::span<char> out) = 0;
  virtual bool open() const = 0;  // inside a stream
  [[noreturn]] void damaged(const char* kind, const char* why) const {
    fail("{}: damaged {} data near byte {}: {}", file_->name(), kind, file_->position() - input_.size(), why);
  }

 private:
  std::unique_ptr<RawFile> file_;
  std::vector<char> raw_;
  std::span<char> input_;
  bool ended_ = false;
};

class GzipInput : public CompressedInput {
 public:
  explicit GzipInput(std::unique_ptr<RawFile> file) : CompressedInput(std::move(file)) {
    require(inflateInit2(&stream_, 15 + 16) == Z_OK, "zlib: cannot start");
  }
  ~GzipInput() override { inflateEnd(&stream_); }

 protected:
  bool open() const override { return open_; }
  size_t step(std::span<char>& in, bool, std::span<char> out) override {
    if (in.empty() && !open_) return 0;
    if (!open_) {
      inflateReset(&stream_);
      open_ = true;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(in.data());
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    const auto room = static_cast<uInt>(std::min<size_t>(out.size(), 1u << 30));
    stream_.avail_out = room;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    in = in.last(stream_.avail_in);
    if (code == Z_STREAM_END) {
      open_ = false;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      damaged("gzip", stream_.msg ? stream_.msg : "unknown reason");
    }
    return room - stream_.avail_out;
  }

 private:
  z_stream stream_{};
  bool open_ = false;
};

class ZstdInput : public CompressedInput {
 public:
  explicit ZstdInput(std::unique_ptr<RawFile> file) : CompressedInput(std::move(file)), stream_(ZSTD_createDStream()) {
    require(stream_ != nullptr, "zstd: cannot start");
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, 29);  // 512 MiB: what `zstd --long=29` needs
  }
  ~ZstdInput() override { ZSTD_freeDStream(stream_); }

 protected:
  bool open() const override { return open_; }
  size_t step(std::span<char>& in, bool ended, std::span<char> out) override {
    if (in.empty() && !open_) return 0;
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t code = ZSTD_decompressStream(stream_, &to, &from);
    if (ZSTD_isError(code)) damaged("zstd", ZSTD_getErrorName(code));
    in = in.subspan(from.pos);
    if (!(ended && to.pos == 0)) open_ = code != 0;
    return to.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool open_ = false;
};

class XzInput : public CompressedInput {
 public:
  explicit XzInput(std::unique_ptr<RawFile> file) : CompressedInput(std::move(file)) {
    require(lzma_stream_decoder(&stream_, kMemory, LZMA_CONCATENATED) == LZMA_OK, "xz: cannot start");
  }
  ~XzInput() override { lzma_end(&stream_); }

 protected:
  bool open() const override { return open_; }
  size_t step(std::span<char>& in, bool ended, std::span<char> out) override {
    if (!open_) return 0;
    stream_.next_in = reinterpret_cast<const uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(out.data());
    stream_.avail_out = out.size();
    const lzma_ret code = lzma_code(&stream_, ended ? LZMA_FINISH : LZMA_RUN);
    in = in.last(stream_.avail_in);
    if (code == LZMA_STREAM_END) {
      open_ = false;
    } else if (code == LZMA_MEMLIMIT_ERROR) {
      damaged("xz", "it needs more than 512 MiB of memory to be read");
    } else if (code != LZMA_OK && code != LZMA_BUF_ERROR) {
      damaged("xz", code == LZMA_FORMAT_ERROR ? "not the xz format" : "the data are corrupt");
    }
    return out.size() - stream_.avail_out;
  }

 private:
  static constexpr uint64_t kMemory = 512u << 20;
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool open_ = true;
};

using namespace std::string_view_literals;

struct Compression {
  std::string_view suffix, magic;
  std::unique_ptr<TextInput> (*open)(std::unique_ptr<RawFile>);
};

template <class Input>
std::unique_ptr<TextInput> make_input(std::unique_ptr<RawFile> file) {
  return std::make_unique<Input>(std::move(file));
}

constexpr Compression kCompressions[] = {
    {".gz", "\x1f\x8b"sv, make_input<GzipInput>},
    {".zst", "\x28\xb5\x2f\xfd"sv, make_input<ZstdInput>},
    {".xz", "\xfd\x37\x7a\x58\x5a\x00"sv, make_input<XzInput>},
};

using FileId = std::pair<dev_t, ino_t>;

std::optional<FileId> id_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileId{status.st_dev, status.st_ino};
}

// Each directory once, by its shortest way: links may lead in circles. `seen` has those not to be looked into.
void add_directory(const fs::path& top, std::set<FileId> seen, const StopCheck& check, std::vector<fs::path>& files) {
  std::vector<fs::path> found, directories{top};
  for (size_t d = 0; d < directories.size(); ++d) {
    check();
    const std::optional<FileId> id = id_of(directories[d]);
    if (!id || !seen.insert(*id).second) continue;
    std::error_code error;
    std::vector<fs::path> below;
    for (fs::directory_iterator it(directories[d], error), end; !error && it != end; it.increment(error)) {
      if (it->path().filename().string().starts_with('.')) continue;
      std::error_code broken;  // a link to nothing is neither
      if (it->is_directory(broken)) below.push_back(it->path());
      if (it->is_regular_file(broken)) found.push_back(it->path());
    }
    require(!error, "{}: cannot list the directory: {}", directories[d].string(), error.message());
    std::ranges::sort(below);
    directories.insert(directories.end(), below.begin(), below.end());
  }
  require(!found.empty(), "{}: the directory holds no files", top.string());
  std::ranges::sort(found);
  files.insert(files.end(), found.begin(), found.end());
}

void add_glob(const std::string& pattern, std::vector<fs::path>& files) {
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_MARK, nullptr, &found);
  const std::vector<std::string> names(found.gl_pathv, found.gl_pathv + (code == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  require(!names.empty(), "{}: no such file, and no file matches it", pattern);
  for (const std::string& name : names) {
    if (!name.ends_with('/')) files.emplace_back(name);
  }
}

}  // namespace

void TextInput::skip(uint64_t bytes, const StopCheck& check) {
  std::vector<char> scratch(kRawBuffer);
  while (bytes > 0) {
    check();
    const size_t n = read(std::span(scratch).first(std::min<uint64_t>(bytes, scratch.size())));
    require(n > 0, "an input is {} bytes shorter than it was", bytes);
    bytes -= n;
  }
}

std::unique_ptr<TextInput> open_text(const fs::path& path) {
  auto file = std::make_unique<RawFile>(path);
  for (const Compression& kind : kCompressions) {
    if (file->head().starts_with(kind.magic)) return kind.open(std::move(file));
    require(!path.string().ends_with(kind.suffix), "{}: the name ends in {}, but the content is not {} data",
            path.string(), kind.suffix, kind.suffix.substr(1));
  }
  return std::make_unique<PlainInput>(std::move(file));
}

void spool(const fs::path& from, const fs::path& to, const std::function<void(uint64_t)>& progress) {
  const int fd = from == "-" ? ::dup(STDIN_FILENO) : ::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  require(fd >= 0, "{}: cannot open: {}", from.string(), std::strerror(errno));
  const std::unique_ptr<const int, void (*)(const int*)> closer(&fd, [](const int* open) { ::close(*open); });
  struct stat status {};
  const bool device = ::fstat(fd, &status) != 0 || S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode);
  require(!device || ::isatty(fd), "{}: is a device, neither a file nor a pipe: it may have no end", from.string());
  OutputFile out(to);
  std::vector<char> block(1 << 20);
  while (true) {
    progress(out.position());
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, 100) <= 0) continue;  // nothing yet, or a signal
    const ssize_t n = ::read(fd, block.data(), block.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    require(n >= 0, "{}: cannot read: {}", from.string(), std::strerror(errno));
    if (n == 0) break;
    out.write(block.data(), static_cast<size_t>(n));
  }
  out.close();
}

uint64_t text_size(const fs::path& path, const StopCheck& check) {
  const std::unique_ptr<TextInput> input = open_text(path);
  if (dynamic_cast<PlainInput*>(input.get())) return fs::file_size(path);
  std::vector<char> scratch(kRawBuffer);
  uint64_t size = 0;
  while (const size_t n = input->read(scratch)) {
    size += n;
    check();
  }
  return size;
}

std::vector<fs::path> expand_inputs(const std::vector<std::string>& inputs, const std::vector<fs::path>& leave_out,
                                    const StopCheck& check) {
  std::set<FileId> seen;
  for (const fs::path& dir : leave_out) {
    if (const auto id = id_of(dir)) seen.insert(*id);
  }
  std::vector<fs::path> files;
  for (const std::string& input : inputs) {
    if (input == "-" || fs::is_regular_file(input)) {
      files.emplace_back(input);
    } else if (fs::is_directory(input)) {
      add_directory(input, seen, check, files);
    } else if (input.find_first_of("*?[") != std::string::npos) {
      add_glob(input, files);
    } else {
      require(fs::exists(input), "{}: no such file", input);
      files.emplace_back(input);  // a pipe or a device
    }
  }
  return files;
}

}  // namespace longshot
