// A client that says what it is told to, byte for byte.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"

namespace longshot {

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};                            // chunks put together
  Json json() const { return parse_json(body, "the answer"); }
  std::string error() const { return json()["error"]["message"].get<std::string>(); }
};

class Client {
 public:
  explicit Client(int port, int receive_bytes = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_bytes > 0) (void)::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in to{};
    to.sin_family = AF_INET, to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    require(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0, "cannot connect");
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // False once the server has closed.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Whether the server closes within so many seconds; what it says first is kept.
  bool closes(double seconds) {
    const double end = seconds_now() + seconds;
    while (seconds_now() < end) {
      if (!receive(end - seconds_now())) return closed_;
    }
    return closed_;
  }
  std::string take_until(const std::string& mark) {
    size_t at = 0;
    while ((at = held_.find(mark)) == std::string::npos) require(receive(30), "the answer ends before '{}'", mark);
    std::string part = held_.substr(0, at + mark.size());
    held_.erase(0, at + mark.size());
    return part;
  }
  std::string take(size_t bytes) {
    while (held_.size() < bytes) require(receive(30), "the answer ends after {} bytes of {}", held_.size(), bytes);
    std::string part = held_.substr(0, bytes);
    held_.erase(0, bytes);
    return part;
  }
  const std::string& held() const { return held_; }

  Answer answer() {
    Answer a;
    const std::string head = take_until("\r\n\r\n");
    a.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      a.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (a.headers.contains("transfer-encoding")) {
      for (;;) {
        const size_t size = std::stoul(take_until("\r\n"), nullptr, 16);
        a.body += take(size);
        take(2);
        if (size == 0) break;
      }
    } else if (a.headers.contains("content-length")) {
      a.body = take(std::stoul(a.headers["content-length"]));
    } else if (a.status != 204) {
      while (receive(30)) continue;
      a.body = std::exchange(held_, "");
    }
    return a;
  }

 private:
  bool receive(double seconds) {
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(seconds * 1000) + 1) <= 0) return false;
    char buffer[1 << 16];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) {
      closed_ = true;
      return false;
    }
    held_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  int fd_;
  bool closed_ = false;
  std::string held_;
};

inline std::string get_text(const std::string& path, const std::string& more = "") {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, more);
}
inline std::string post_text(const std::string& path, const std::string& body, const std::string& more = "") {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", path,
      body.size(), more, body);
}

// The JSON of every event of a stream but the last, which must be [DONE].
inline std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    require(end != std::string::npos && body.compare(at, 6, "data: ") == 0, "no event: {}", body.substr(at));
    const std::string data = body.substr(at + 6, end - at - 6);
    at = end + 2;
    if (data == "[DONE]") {
      require(at == body.size(), "there is more behind [DONE]");
      return events;
    }
    events.push_back(parse_json(data, "event"));
  }
  fail("the stream has no end");
}

}  // namespace longshot
