// HTTP as the rest of this room sees it: requests, and ways to answer them.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace longshot {

struct HttpRequest {
  std::string method;        // "GET"
  std::string path, query;   // of the target, as sent: nothing is decoded
  std::string host, origin;  // headers; "" where there is none
  std::string authorization, content_type;
  bool has_host = false, has_origin = false;
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

// The answer to one request: one reply, or a stream between begin and end. Any thread may give it; what comes after the
// end, or after the client has gone, goes nowhere.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void reply(HttpReply reply) = 0;
  virtual void begin_stream(std::string type) = 0;
  virtual void send(std::string text) = 0;
  virtual void end_stream() = 0;

  // Nobody reads any more: the client went away, or did not read for too long.
  bool gone() const { return gone_; }

 protected:
  std::atomic<bool> gone_{false};
};

// Called on the server's thread; must not throw and should not block.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

}  // namespace longshot
