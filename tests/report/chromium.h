// Headless Chromium, driven through its DevTools protocol over two pipes: JSON messages that end with a zero
// byte.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/records.h"

namespace longshot {

class Chromium {
 public:
  // The program's path, or "" where none is installed.
  static std::string find();

  Chromium(const std::string& program, const fs::path& profile);
  ~Chromium();
  Chromium(const Chromium&) = delete;
  Chromium& operator=(const Chromium&) = delete;

  // Sends a command to the page and returns its result; events that come meanwhile are kept.
  Json call(const std::string& method, const Json& parameters = Json::object());
  Json evaluate(const std::string& expression);  // the value; a thrown error fails
  void open(const fs::path& page, int width, int height) { open_address("file://" + page.string(), width, height); }
  void open_address(const std::string& address, int width, int height);
  void move_mouse(double x, double y);
  void click(double x, double y);
  void save(const std::string& method, const Json& parameters, const fs::path& path);  // a screenshot or PDF

  const std::vector<Json>& events() const { return events_; }

 private:
  void send(const Json& message) const;
  Json receive();  // the next message; fails after a minute of silence

  int pid_ = 0, to_ = -1, from_ = -1;
  int next_id_ = 1;
  std::string session_, pending_;
  std::vector<Json> events_;
};

inline std::string Chromium::find() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"})
    if (fs::exists(path)) return path;
  return "";
}

inline Chromium::Chromium(const std::string& program, const fs::path& profile) {
  int in[2], out[2];
  require(::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0, "no pipe");
  // Copies above 10, so that the child's 3 and 4 are free to be overwritten.
  const int child_in = ::fcntl(in[0], F_DUPFD_CLOEXEC, 10), child_out = ::fcntl(out[1], F_DUPFD_CLOEXEC, 10);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, child_in, 3);
  posix_spawn_file_actions_adddup2(&actions, child_out, 4);
  posix_spawnattr_t attributes;  // a process group of its own: the browser's helpers end with it
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> arguments{program,
                                     "--headless=new",
                                     "--remote-debugging-pipe",
                                     "--no-sandbox",
                                     "--disable-gpu",
                                     "--no-first-run",
                                     "--disable-background-networking",
                                     "--disable-component-update",
                                     "--disable-dev-shm-usage",
                                     "--user-data-dir=" + profile.string(),
                                     "about:blank"};
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  const int failure = ::posix_spawn(&pid_, program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  for (const int fd : {in[0], out[1], child_in, child_out}) ::close(fd);
  to_ = in[1], from_ = out[0];
  require(failure == 0, "{} does not start: {}", program, std::strerror(failure));

  const Json target = call("Target.createTarget", {{"url", "about:blank"}});
  session_ = call("Target.attachToTarget", {{"targetId", target["targetId"]}, {"flatten", true}})["sessionId"];
  for (const char* domain : {"Runtime", "Log", "Network", "Page"}) call(std::string(domain) + ".enable");
}

inline Chromium::~Chromium() {
  ::close(to_);
  ::close(from_);
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

inline void Chromium::send(const Json& message) const {
  const std::string text = message.dump();
  const size_t size = text.size() + 1;
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(to_, text.c_str() + done, size - done);
    require(n > 0, "the browser does not listen");
    done += static_cast<size_t>(n);
  }
}

inline Json Chromium::receive() {
  for (;;) {
    if (const size_t end = pending_.find('\0'); end != std::string::npos) {
      const std::string text = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return parse_json(text, "the browser");
    }
    pollfd ready{.fd = from_, .events = POLLIN, .revents = 0};
    require(::poll(&ready, 1, 60'000) > 0, "the browser says nothing");
    char buffer[65536];
    const ssize_t n = ::read(from_, buffer, sizeof buffer);
    require(n > 0, "the browser has ended");
    pending_.append(buffer, static_cast<size_t>(n));
  }
}

inline Json Chromium::call(const std::string& method, const Json& parameters) {
  const int id = next_id_++;
  Json message{{"id", id}, {"method", method}, {"params", parameters}};
  if (!session_.empty()) message["sessionId"] = session_;
  send(message);
  for (;;) {
    Json answer = receive();
    if (answer.value("id", 0) != id) {
      events_.push_back(std::move(answer));
      continue;
    }
    require(!answer.contains("error"), "{}: {}", method, answer.dump());
    return answer["result"];
  }
}

inline Json Chromium::evaluate(const std::string& expression) {
  const Json result =
      call("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
  require(!result.contains("exceptionDetails"), "{}", result.dump());
  return result["result"].value("value", Json());
}

inline void Chromium::open_address(const std::string& address, int width, int height) {
  call("Emulation.setDeviceMetricsOverride",
       {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", false}});
  events_.clear();
  call("Page.navigate", {{"url", address}});
  const auto loaded = [&] {
    return std::ranges::any_of(events_, [](const Json& e) { return e.value("method", "") == "Page.loadEventFired"; });
  };
  while (!loaded()) events_.push_back(receive());
  // Two frames: the charts have then been laid out and drawn.
  evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
}

inline void Chromium::move_mouse(double x, double y) {
  call("Input.dispatchMouseEvent", {{"type", "mouseMoved"}, {"x", x}, {"y", y}});
}

inline void Chromium::click(double x, double y) {
  for (const char* type : {"mousePressed", "mouseReleased"})
    call("Input.dispatchMouseEvent", {{"type", type}, {"x", x}, {"y", y}, {"button", "left"}, {"clickCount", 1}});
}

inline void Chromium::save(const std::string& method, const Json& parameters, const fs::path& path) {
  const std::string base64 = call(method, parameters)["data"];
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : base64) {
    static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count);
  }
  write_atomically(path, bytes);
}

}  // namespace longshot
