#include "base/files.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"

namespace longshot {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr size_t kDirectBytes = 128 << 10;  // a piece of this size goes past the buffer

std::string reason() { return std::strerror(errno); }

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Opens a regular file. Its kind is asked before, because opening may wait (a pipe) or act (a device), and after,
// because another may have come into its place.
Descriptor open_regular(const fs::path& path, int flags, const char* purpose) {
  struct stat status {};
  const bool follow = !(flags & O_NOFOLLOW);
  const int known = follow ? ::stat(path.c_str(), &status) : ::lstat(path.c_str(), &status);
  const auto refuse = [&] {
    fail("{}: cannot {}: it is {}, not a regular file", path.string(), purpose, kind_of(status.st_mode));
  };
  if (known == 0 && !S_ISREG(status.st_mode)) refuse();
  Descriptor file(::open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC, 0644));
  require(file.get() >= 0, "{}: cannot {}: {}", path.string(), purpose, reason());
  require(::fstat(file.get(), &status) == 0, "{}: cannot {}: {}", path.string(), purpose, reason());
  if (!S_ISREG(status.st_mode)) refuse();
  return Descriptor(file.release());
}

uint64_t size_of(int fd, const fs::path& path) {
  struct stat status {};
  require(::fstat(fd, &status) == 0, "{}: cannot ask for its size: {}", path.string(), reason());
  return static_cast<uint64_t>(status.st_size);
}

// PATH.tmp, empty and locked. A lock that the file system does not know is done without.
Descriptor open_aside(const fs::path& aside) {
  for (;;) {
    Descriptor file = open_regular(aside, O_WRONLY | O_CREAT | O_NOFOLLOW, "create");
    while (::flock(file.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
    struct stat opened {};
    require(::fstat(file.get(), &opened) == 0, "{}: cannot create: {}", aside.string(), reason());
    if (!is_still(aside, file.get())) continue;  // the writer that was waited for has put it into place
    require(opened.st_nlink == 1, "{}: has {} names, so it is not a file that a writer left. Remove it.",
            aside.string(), opened.st_nlink);
    require(::ftruncate(file.get(), 0) == 0, "{}: cannot create: {}", aside.string(), reason());
    return Descriptor(file.release());
  }
}

// A file may be replaced, and a link to one; a directory, a pipe or a device may not, also behind a link.
void require_replaceable(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return;
  require(S_ISREG(status.st_mode), "{}: cannot be written: it is {}", path.string(), kind_of(status.st_mode));
}

void write_fully(int fd, const fs::path& path, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, "{}: cannot write {} bytes: {}", path.string(), size, reason());
    data += n;
    size -= static_cast<size_t>(n);
  }
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  Descriptor file = open_regular(path, O_RDONLY, "open");
  size_ = size_of(file.get(), path);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  require(address != MAP_FAILED, "{}: cannot map {} bytes: {}", path.string(), size_, reason());
  data_ = static_cast<const std::byte*>(address);
  fd_ = file.release();
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

void MappedFile::copy(std::span<const std::byte> part, std::span<std::byte> out) const {
  assert(part.size() == out.size());
  assert(part.empty() || (part.data() >= data_ && part.data() + part.size() <= data_ + size_));
  size_t done = 0;
  while (done < out.size()) {
    const auto at = static_cast<off_t>(part.data() - data_) + static_cast<off_t>(done);
    const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, at);
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, "{}: cannot read: {}", path_.string(), reason());
    require(n > 0, "{}: ends at byte {}, but it had {} when it was opened. Does another process write it?",
            path_.string(), at, size_);
    done += static_cast<size_t>(n);
  }
}

OutputFile::OutputFile(const fs::path& path) : path_(path) {
  require(::unlink(path.c_str()) == 0 || errno == ENOENT, "{}: cannot replace: {}", path.string(), reason());
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  require(fd_ >= 0, "{}: cannot create: {}", path.string(), reason());
  buffer_.reserve(kBufferBytes);
}

OutputFile::OutputFile(const fs::path& path, uint64_t keep) : path_(path), position_(keep) {
  Descriptor file = open_regular(path, O_WRONLY | O_NOFOLLOW, "go on writing");
  const auto end = static_cast<off_t>(keep);
  const uint64_t size = size_of(file.get(), path);
  require(size >= keep, "{}: cannot go on behind byte {}: it has {} bytes", path.string(), keep, size);
  require(::ftruncate(file.get(), end) == 0 && ::lseek(file.get(), end, SEEK_SET) == end,
          "{}: cannot go on behind byte {}: {}", path.string(), keep, reason());
  buffer_.reserve(kBufferBytes);
  fd_ = file.release();
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::flush() {
  write_fully(fd_, path_, buffer_.data(), buffer_.size());
  buffer_.clear();
}

void OutputFile::write(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  const bool direct = size >= kDirectBytes;
  if (direct || buffer_.size() + size > kBufferBytes) flush();
  if (direct) {
    write_fully(fd_, path_, bytes, size);
  } else {
    buffer_.insert(buffer_.end(), bytes, bytes + size);
  }
  position_ += size;
}

void OutputFile::overwrite(uint64_t offset, const void* data, size_t size) {
  flush();
  const ssize_t n = ::pwrite(fd_, data, size, static_cast<off_t>(offset));
  require(n == static_cast<ssize_t>(size), "{}: cannot write {} bytes at {}: {}", path_.string(), size, offset,
          reason());
}

void OutputFile::sync() {
  flush();
  require(::fsync(fd_) == 0, "{}: cannot sync to disk: {}", path_.string(), reason());
}

void OutputFile::close() {
  sync();
  const int fd = std::exchange(fd_, -1);
  require(::close(fd) == 0, "{}: cannot close: {}", path_.string(), reason());
}

// By read(2), not mapped: a file that shrinks meanwhile is a shorter text, not a signal.
std::string read_text(const fs::path& path, size_t limit) {
  const Descriptor file = open_regular(path, O_RDONLY, "open");
  const uint64_t size = size_of(file.get(), path);
  const auto check = [&](uint64_t bytes) {
    require(bytes <= limit, "{}: {} bytes are more than the {} that such a file may have", path.string(), bytes, limit);
  };
  check(size);
  std::string text(size, '\0');
  size_t at = 0;
  for (;;) {
    if (at == text.size()) text.resize(at + 4096);  // it may have grown, or never knew its size
    const ssize_t n = ::read(file.get(), text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    require(n >= 0, "{}: cannot read: {}", path.string(), reason());
    if (n == 0) break;
    at += static_cast<size_t>(n);
    check(at);
  }
  text.resize(at);
  return text;
}

void write_atomically(const fs::path& path, std::string_view text) {
  require_replaceable(path);
  fs::path aside = path;
  aside += ".tmp";
  const Descriptor file = open_aside(aside);
  try {
    write_fully(file.get(), aside, text.data(), text.size());
    require(::fsync(file.get()) == 0, "{}: cannot sync to disk: {}", aside.string(), reason());
    publish(aside, path);
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
}

void append_text(const fs::path& path, std::string_view text) {
  const Descriptor file = open_regular(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, "append");
  const uint64_t size = size_of(file.get(), path);
  const ssize_t n = ::write(file.get(), text.data(), text.size());
  if (n == static_cast<ssize_t>(text.size())) return;
  const std::string why = n < 0 ? reason() : "no space left?";
  const bool mended = n <= 0 || ::ftruncate(file.get(), static_cast<off_t>(size)) == 0;
  fail("{}: cannot append {} bytes: {}{}", path.string(), text.size(), why,
       mended ? "" : ". A part of them stands at its end");
}

void publish(const fs::path& from, const fs::path& to) {
  if (fs::is_directory(from)) sync_file(from);
  std::error_code error;
  fs::rename(from, to, error);
  require(!error, "{}: cannot rename to {}: {}", from.string(), to.string(), error.message());
  sync_file(to.has_parent_path() ? to.parent_path() : fs::path("."));
}

void sync_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  require(file.get() >= 0, "{}: cannot open to sync: {}", path.string(), reason());
  require(::fsync(file.get()) == 0, "{}: cannot sync to disk: {}", path.string(), reason());
}

void require_writable(const fs::path& path) {
  const fs::path dir = path.has_parent_path() ? path.parent_path() : fs::path(".");
  require(fs::is_directory(dir), "{}: cannot be written: {} is no directory", path.string(), dir.string());
  require_replaceable(path);
  require(::access(dir.c_str(), W_OK | X_OK) == 0, "{}: cannot be written: {}", path.string(), std::strerror(errno));
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  require(!error && fs::is_directory(path), "{}: cannot create the directory: {}", path.string(),
          error ? error.message() : "a file of that name is in the way");
}

void make_subdirectory(const fs::path& path) {
  std::error_code error;
  fs::create_directory(path, error);
  const fs::file_status status = fs::symlink_status(path, error);
  require(fs::is_directory(status), "{}: cannot create the directory: {}", path.string(),
          fs::is_symlink(status) ? "a symbolic link is in the way"
          : fs::exists(status)   ? "a file of that name is in the way"
                                 : error.message());
}

uint32_t crc32(std::span<const std::byte> bytes, uint32_t before) {
  if (bytes.empty()) return before;  // libdeflate begins anew where there is no memory
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

std::string Checksum::text() const { return fmt::format("{:08x}", sum_); }

std::string checksum(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.text();
}

std::string checksum(const MappedFile& file, const Watch& watch) {
  constexpr size_t kPiece = size_t{256} << 10;  // bytes that stay in the cache from their reading to their summing
  Checksum sum;
  std::vector<std::byte> piece(std::min(kPiece, file.size()));
  for (size_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min(kPiece, file.size() - at));
    file.copy(file.bytes().subspan(at, piece.size()), piece);
    sum.add(piece);
    watch.at(static_cast<double>(at + piece.size()) / static_cast<double>(file.size()));
  }
  return sum.text();
}

}  // namespace longshot
