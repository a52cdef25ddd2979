#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace longshot {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

std::string reason() { return std::strerror(errno); }

void sync_path(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(fd >= 0, "{}: cannot open to sync: {}", path.string(), reason());
  const int failed = ::fsync(fd);
  const std::string why = reason();
  ::close(fd);
  require(!failed, "{}: cannot sync to disk: {}", path.string(), why);
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
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(fd >= 0, "{}: cannot open: {}", path.string(), reason());
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(fd);
    fail("{}: not a regular file", path.string());
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (address == MAP_FAILED) {
      const std::string why = reason();
      ::close(fd);
      fail("{}: cannot map {} bytes: {}", path.string(), size_, why);
    }
    data_ = static_cast<const std::byte*>(address);
  }
  ::close(fd);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

OutputFile::OutputFile(const fs::path& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  require(fd_ >= 0, "{}: cannot create: {}", path.string(), reason());
  buffer_.reserve(kBufferBytes);
}

OutputFile::OutputFile(const fs::path& path, uint64_t keep) : path_(path), position_(keep) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  require(fd_ >= 0, "{}: cannot open to go on writing: {}", path.string(), reason());
  const auto end = static_cast<off_t>(keep);
  struct stat status {};
  const bool whole = ::fstat(fd_, &status) == 0 && status.st_size >= end;
  if (!whole || ::ftruncate(fd_, end) != 0 || ::lseek(fd_, end, SEEK_SET) != end) {
    const std::string why = whole ? reason() : fmt::format("it has {} bytes", status.st_size);
    ::close(fd_);
    fail("{}: cannot go on behind byte {}: {}", path.string(), keep, why);
  }
  buffer_.reserve(kBufferBytes);
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
  if (buffer_.size() + size > kBufferBytes) flush();
  if (size > kBufferBytes) {
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

std::string read_text(const fs::path& path) { return std::string(MappedFile(path).text()); }

void write_atomically(const fs::path& path, std::string_view text) {
  fs::path aside = path;
  aside += ".tmp";
  {
    OutputFile out(aside);
    out.write(text);
    out.close();
  }
  publish(aside, path);
}

void publish(const fs::path& from, const fs::path& to) {
  if (fs::is_directory(from)) sync_path(from);
  std::error_code error;
  fs::rename(from, to, error);
  require(!error, "{}: cannot rename to {}: {}", from.string(), to.string(), error.message());
  sync_path(to.has_parent_path() ? to.parent_path() : fs::path("."));
}

void require_writable(const fs::path& path) {
  const fs::path dir = path.has_parent_path() ? path.parent_path() : fs::path(".");
  require(fs::is_directory(dir), "{}: cannot be written: {} is no directory", path.string(), dir.string());
  require(!fs::is_directory(path), "{}: cannot be written: it is a directory", path.string());
  require(::access(dir.c_str(), W_OK | X_OK) == 0, "{}: cannot be written: {}", path.string(), std::strerror(errno));
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  require(!error && fs::is_directory(path), "{}: cannot create the directory: {}", path.string(),
          error ? error.message() : "a file of that name is in the way");
}

std::string checksum(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return fmt::format("{:08x}", crc32_z(crc32_z(0, nullptr, 0), data, bytes.size()));
}

}  // namespace longshot
