#include "base/records.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace longshot {

Json parse_json(std::string_view text, const std::string& origin) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    fail("{}: not valid JSON ({})", origin, e.what());
  }
}

Json read_json(const fs::path& path) { return parse_json(read_text(path), path.string()); }

void write_json(const fs::path& path, const Json& value) { write_atomically(path, value.dump(2) + "\n"); }

void append_record(const fs::path& path, const Json& record) {
  const std::string line = record.dump() + "\n";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  require(fd >= 0, "{}: cannot open to append: {}", path.string(), std::strerror(errno));
  const ssize_t n = ::write(fd, line.data(), line.size());
  const std::string why = std::strerror(errno);
  ::close(fd);
  require(n == static_cast<ssize_t>(line.size()), "{}: cannot append {} bytes: {}", path.string(), line.size(),
          n < 0 ? why : "no space left?");
}

std::vector<Json> read_records(const fs::path& path) {
  const std::string text = read_text(path);
  std::vector<Json> records;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    if (end == begin) continue;
    records.push_back(parse_json(std::string_view(text).substr(begin, end - begin),
                                 fmt::format("{}, line {}", path.string(), records.size() + 1)));
  }
  return records;
}

}  // namespace longshot
