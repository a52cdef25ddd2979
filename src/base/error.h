// The one error type of the library. The message carries the file or option, the numbers that disagree and a
// likely cause. The library never exits and never prints; cli/main.cc turns an Error into a message and a code.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace longshot {

class Error : public std::runtime_error {
 public:
  enum class Kind { kFailed, kUsage };  // exit codes 1 and 2
  explicit Error(const std::string& message, Kind kind = Kind::kFailed) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// A wrong option, key or value: the user must type something else.
template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), Error::Kind::kUsage);
}

template <class... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    fail(format, std::forward<Args>(args)...);
}

template <class... Args>
void require_usage(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    fail_usage(format, std::forward<Args>(args)...);
}

}  // namespace longshot
