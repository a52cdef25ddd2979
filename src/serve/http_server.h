// HTTP/1.1 on a socket, with a limit on everything a client can ask for. One thread; Boost.Beast stays in the .cc file.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/options.h"
#include "serve/http.h"

namespace longshot {

struct HttpConfig {
  std::string host = "127.0.0.1";  // an address, or a name that has one
  int port = 8080;                 // 0: any free one
  int64_t connections = 256;
  int64_t header_bytes = 16 << 10;
  int64_t body_bytes = 1 << 20;
  int64_t unread_bytes = 1 << 20;  // of an answer that a client has not taken
  double header_seconds = 15;      // until a request's header is there, on a connection that waits too
  double body_seconds = 30;        // for the rest of a request
  double write_seconds = 30;       // a client that takes nothing for so long is gone

  void fields(Options& o);
  void validate() const;
};

class HttpServer {
 public:
  // Listens; Error where that is not possible. Requests are answered from here on.
  HttpServer(const HttpConfig& config, HttpHandler handler);
  ~HttpServer();  // connections are closed; answers that wait to be sent have a moment
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  int64_t connections() const;  // open now

  struct State;  // known to the .cc file alone

 private:
  std::unique_ptr<State> state_;
};

}  // namespace longshot
