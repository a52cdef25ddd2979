#include "serve/http_server.h"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <deque>
#include <set>
#include <thread>

#include "base/error.h"
#include "serve/error_reply.h"

namespace longshot {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr double kGoodbyeSeconds = 2;              // for a client to take the last words
constexpr size_t kGoodbyeBytes = size_t{4} << 20;  // of its own that are thrown away meanwhile

constexpr std::chrono::milliseconds kGraceStep{5};  // an end looks so often, so many times, for answers to be gone
constexpr int kGraceTries = 60;

std::chrono::nanoseconds nanoseconds(double seconds) { return std::chrono::nanoseconds(std::llround(seconds * 1e9)); }

std::string length_text(const HttpReply& reply) {
  return reply.status == 204 ? "" : fmt::format("Content-Length: {}\r\n", reply.body.size());
}

// `length`: a whole line that says where the body ends, or "".
std::string header_text(const HttpReply& reply, const std::string& length, bool keep_alive) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(reply.status));
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}Connection: {}\r\n", reply.status,
                                std::string_view(reason.data(), reason.size()), reply.type, length,
                                keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : reply.headers) out += fmt::format("{}: {}\r\n", name, value);
  return out + "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n";
}

}  // namespace

// A client. All of it runs on the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, HttpServer::State& server);
  void read_request();
  void close();
  bool is_idle() const { return !exchange_ && !writing_; }

 private:
  friend class ConnectionExchange;
  using Parser = http::request_parser<http::string_body>;

  void on_header(error_code error);
  void on_unreadable(error_code error);
  void on_request();
  void refuse(int status, const std::string& message);
  void watch();
  void on_readable();
  // Of the exchange at hand; others are forgotten.
  void reply(const Exchange* from, const HttpReply& reply);
  void begin_stream(const Exchange* from, const std::string& type);
  void send(const Exchange* from, const std::string& text);
  void end_stream(const Exchange* from);
  void queue(std::string bytes);
  void write_next();
  void on_written(error_code error);
  void finish_exchange();
  void say_goodbye();
  void deadline(double seconds);
  void no_deadline();

  tcp::socket socket_;
  HttpServer::State& server_;
  asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::unique_ptr<Parser> parser_;                                  // of one request
  std::shared_ptr<class ConnectionExchange> exchange_;              // the request being answered
  bool keep_alive_ = false, chunked_ = false, body_wanted_ = true;  // of the request at hand
  bool ended_ = false, writing_ = false, closed_ = false;
  std::deque<std::string> out_;
  size_t out_bytes_ = 0, thrown_away_ = 0;
};

class ConnectionExchange : public Exchange, public std::enable_shared_from_this<ConnectionExchange> {
 public:
  ConnectionExchange(asio::io_context& io, std::weak_ptr<Connection> connection)
      : io_(io), connection_(std::move(connection)) {}

  void reply(HttpReply reply) override {
    post([reply = std::move(reply)](Connection& c, const Exchange* self) { c.reply(self, reply); });
  }
  void begin_stream(std::string type) override {
    post([type = std::move(type)](Connection& c, const Exchange* self) { c.begin_stream(self, type); });
  }
  void send(std::string text) override {
    post([text = std::move(text)](Connection& c, const Exchange* self) { c.send(self, text); });
  }
  void end_stream() override {
    post([](Connection& c, const Exchange* self) { c.end_stream(self); });
  }
  void set_gone() { gone_ = true; }

 private:
  template <class F>
  void post(F f) {
    asio::post(io_, [self = shared_from_this(), f = std::move(f)] {
      if (const auto connection = self->connection_.lock()) f(*connection, self.get());
    });
  }
  asio::io_context& io_;
  std::weak_ptr<Connection> connection_;
};

struct HttpServer::State {
  State(HttpConfig c, HttpHandler h) : config(std::move(c)), handler(std::move(h)), acceptor(io), retry(io) {}

  void listen();
  void accept();
  void on_accepted(error_code error, tcp::socket socket);
  void end(int tries);

  HttpConfig config;
  HttpHandler handler;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::steady_timer retry;
  std::set<std::shared_ptr<Connection>> connections;
  std::atomic<int64_t> open{0};
  int port = 0;
  bool stopping = false;
  std::thread thread;
};

Connection::Connection(tcp::socket socket, HttpServer::State& server)
    : socket_(std::move(socket)),
      server_(server),
      timer_(server.io),
      buffer_(static_cast<size_t>(server.config.header_bytes) + (1 << 16)) {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
}

void Connection::deadline(double seconds) {
  timer_.expires_after(nanoseconds(seconds));
  timer_.async_wait([self = shared_from_this()](error_code error) {
    // One that expired while it was being moved is no longer meant.
    if (!error && self->timer_.expiry() <= asio::steady_timer::clock_type::now()) self->close();
  });
}

void Connection::no_deadline() { timer_.expires_at(asio::steady_timer::time_point::max()); }

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  if (exchange_) exchange_->set_gone();
  exchange_.reset();
  timer_.cancel();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  server_.connections.erase(shared_from_this());
  server_.open = static_cast<int64_t>(server_.connections.size());
}

void Connection::read_request() {
  parser_ = std::make_unique<Parser>();
  parser_->header_limit(static_cast<uint32_t>(server_.config.header_bytes));
  parser_->body_limit(static_cast<uint64_t>(server_.config.body_bytes));
  deadline(server_.config.header_seconds);
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, size_t) { self->on_header(error); });
}

void Connection::on_header(error_code error) {
  if (closed_) return;
  if (error) return on_unreadable(error);
  deadline(server_.config.body_seconds);
  const auto expect = parser_->get()[http::field::expect];
  if (boost::beast::iequals(expect, "100-continue") && !parser_->is_done()) queue("HTTP/1.1 100 Continue\r\n\r\n");
  http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code failed, size_t) {
    if (self->closed_) return;
    failed ? self->on_unreadable(failed) : self->on_request();
  });
}

// Says what is wrong with a request, unless the client is gone.
void Connection::on_unreadable(error_code error) {
  const HttpConfig& limits = server_.config;
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refuse(431, fmt::format("the header is larger than {} bytes", limits.header_bytes));
  if (error == http::error::body_limit)
    return refuse(413, fmt::format("the body is larger than {} bytes", limits.body_bytes));
  const bool of_http = error.category() == http::make_error_code(http::error::bad_method).category();
  if (!of_http || error == http::error::end_of_stream || error == http::error::partial_message) return close();
  refuse(400, "this is no HTTP request: " + error.message());
}

void Connection::on_request() {
  no_deadline();
  const auto& got = parser_->get();
  const auto field = [&](http::field name) {
    const auto value = got[name];
    return std::string(value.data(), value.size());
  };
  HttpRequest request;
  body_wanted_ = got.method() != http::verb::head;
  request.method = body_wanted_ ? std::string(got.method_string()) : "GET";
  const std::string target(got.target());
  request.path = target.substr(0, target.find('?'));
  if (request.path.size() < target.size()) request.query = target.substr(request.path.size() + 1);
  request.has_host = got.count(http::field::host) == 1, request.has_origin = got.count(http::field::origin) > 0;
  request.host = field(http::field::host), request.origin = field(http::field::origin);
  request.authorization = field(http::field::authorization);
  request.content_type = field(http::field::content_type);
  request.body = std::move(parser_->get().body());
  keep_alive_ = got.keep_alive() && !server_.stopping;
  chunked_ = got.version() >= 11;
  ended_ = false;
  exchange_ = std::make_shared<ConnectionExchange>(server_.io, weak_from_this());
  watch();
  server_.handler(std::move(request), exchange_);
}

// An answer to what could not be read; the connection ends with it.
void Connection::refuse(int status, const std::string& message) {
  keep_alive_ = false, body_wanted_ = true, ended_ = false;
  exchange_ = std::make_shared<ConnectionExchange>(server_.io, weak_from_this());
  reply(exchange_.get(), error_reply(status, message));
}

// Tells when the client goes away while it waits for an answer. What it sends meanwhile stays where it is.
void Connection::watch() {
  socket_.async_wait(tcp::socket::wait_read,
                     [self = shared_from_this(), of = std::weak_ptr(exchange_)](error_code error) {
                       if (!error && of.lock() && of.lock() == self->exchange_) self->on_readable();
                     });
}

void Connection::on_readable() {
  char byte = 0;
  error_code error;
  const size_t count = socket_.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
  if (error || count == 0) close();
}

void Connection::reply(const Exchange* from, const HttpReply& reply) {
  if (from != exchange_.get() || ended_) return;
  ended_ = true;
  queue(header_text(reply, length_text(reply), keep_alive_) + (body_wanted_ ? reply.body : ""));
}

void Connection::begin_stream(const Exchange* from, const std::string& type) {
  if (from != exchange_.get() || ended_) return;
  if (!chunked_) keep_alive_ = false;  // HTTP/1.0: the end of the connection ends the answer
  queue(header_text({.type = type}, chunked_ ? "Transfer-Encoding: chunked\r\n" : "", keep_alive_));
}

void Connection::send(const Exchange* from, const std::string& text) {
  if (from != exchange_.get() || ended_ || text.empty()) return;
  queue(chunked_ ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : text);
}

void Connection::end_stream(const Exchange* from) {
  if (from != exchange_.get() || ended_) return;
  ended_ = true;
  if (chunked_) return queue("0\r\n\r\n");
  if (!writing_) finish_exchange();
}

void Connection::queue(std::string bytes) {
  if (closed_) return;
  out_bytes_ += bytes.size();
  // A reply is made whole and may be large; a stream that nobody takes grows.
  if (!ended_ && out_bytes_ > static_cast<size_t>(server_.config.unread_bytes)) return close();
  out_.push_back(std::move(bytes));
  if (!writing_) write_next();
}

void Connection::write_next() {
  writing_ = true;
  if (exchange_) deadline(server_.config.write_seconds);
  asio::async_write(socket_, asio::buffer(out_.front()),
                    [self = shared_from_this()](error_code error, size_t) { self->on_written(error); });
}

void Connection::on_written(error_code error) {
  writing_ = false;
  if (closed_) return;
  if (error) return close();
  out_bytes_ -= out_.front().size();
  out_.pop_front();
  if (!out_.empty()) return write_next();
  if (!exchange_) return;  // an interim answer: the request's deadline still holds
  no_deadline();
  if (ended_) finish_exchange();
}

void Connection::finish_exchange() {
  exchange_.reset();
  if (!keep_alive_ || server_.stopping) return say_goodbye();
  read_request();
}

// Closing with bytes unread would reset the connection, and the client might lose the answer.
void Connection::say_goodbye() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (thrown_away_ == 0) deadline(kGoodbyeSeconds);
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(1 << 14), [self = shared_from_this()](error_code error, size_t count) {
    self->thrown_away_ += count;
    if (error || self->closed_ || self->thrown_away_ > kGoodbyeBytes) return self->close();
    self->say_goodbye();
  });
}

void HttpServer::State::listen() {
  error_code error;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(config.host, std::to_string(config.port), tcp::resolver::passive, error);
  require(!error, "--host {}: {}", config.host, error.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  require(!error, "cannot listen on {}, port {}: {}. Is another program there?", config.host, config.port,
          error.message());
  port = acceptor.local_endpoint().port();
}

void HttpServer::State::accept() {
  acceptor.async_accept([this](error_code error, tcp::socket socket) { on_accepted(error, std::move(socket)); });
}

void HttpServer::State::on_accepted(error_code error, tcp::socket socket) {
  if (stopping) return;
  if (error) {  // no file descriptor left, for one: later there may be
    retry.expires_after(std::chrono::milliseconds(50));
    return retry.async_wait([this](error_code ended) {
      if (!ended && !stopping) accept();
    });
  }
  if (static_cast<int64_t>(connections.size()) < config.connections) {
    const auto connection = std::make_shared<Connection>(std::move(socket), *this);
    connections.insert(connection);
    open = static_cast<int64_t>(connections.size());
    connection->read_request();
  } else {
    const HttpReply full =
        error_reply(503, fmt::format("{} connections are open, the most there may be", config.connections));
    socket.non_blocking(true, error);
    socket.send(asio::buffer(header_text(full, length_text(full), false) + full.body), 0, error);
  }
  accept();
}

// Who waits for nothing is cut off at once, answers on their way have a moment.
void HttpServer::State::end(int tries) {
  const auto all = connections;
  for (const auto& connection : all) {
    if (tries == 0 || connection->is_idle()) connection->close();
  }
  if (connections.empty()) return (void)retry.cancel();
  retry.expires_after(kGraceStep);
  retry.async_wait([this, tries](error_code error) {
    if (!error) end(tries - 1);
  });
}

HttpServer::HttpServer(const HttpConfig& config, HttpHandler handler)
    : state_(std::make_unique<State>(config, std::move(handler))) {
  config.validate();
  state_->listen();
  state_->accept();
  state_->thread = std::thread([state = state_.get()] { state->io.run(); });
}

HttpServer::~HttpServer() {
  asio::post(state_->io, [state = state_.get()] {
    state->stopping = true;
    error_code ignored;
    state->acceptor.close(ignored);
    state->end(kGraceTries);
  });
  state_->thread.join();  // with the last connection its loop runs out of work
}

int HttpServer::port() const { return state_->port; }
int64_t HttpServer::connections() const { return state_->open; }

void HttpConfig::fields(Options& o) {
  o.add("host", host, "address to listen on; 127.0.0.1: this machine only");
  o.add("port", port, "to listen on; 0: any that is free");
  o.group("limits");
  o.add("max-connections", connections, "open at once");
  o.add("max-header", header_bytes, "bytes of a request's header");
  o.add("max-body", body_bytes, "bytes of a request's body");
  o.add("max-unread", unread_bytes, "bytes of an answer that a client leaves unread before it is cut off");
  o.add("header-seconds", header_seconds, "for a request's header to come; a connection that waits is closed");
  o.add("body-seconds", body_seconds, "for the rest of a request to come");
  o.add("write-seconds", write_seconds, "a client that takes nothing for so long is cut off");
}

void HttpConfig::validate() const {
  require_usage(!host.empty(), "--host must not be empty");
  require_usage(port >= 0 && port <= 65535, "--port: {} is not between 0 and 65535", port);
  require_usage(connections > 0 && connections <= 100'000, "--max-connections: {} is not between 1 and 100000",
                connections);
  require_usage(header_bytes >= 512 && header_bytes <= 1 << 20, "--max-header: {} is not between 512 and {}",
                header_bytes, 1 << 20);
  require_usage(body_bytes > 0 && body_bytes <= 1 << 30, "--max-body: {} is not between 1 and {}", body_bytes, 1 << 30);
  require_usage(unread_bytes > 0 && unread_bytes <= 1 << 30, "--max-unread: {} is not between 1 and {}", unread_bytes,
                1 << 30);
  for (const auto& [name, seconds] :
       {std::pair("header", header_seconds), std::pair("body", body_seconds), std::pair("write", write_seconds)}) {
    require_usage(seconds > 0 && seconds <= 86400, "--{}-seconds: {} is not between 0 and 86400", name, seconds);
  }
}

}  // namespace longshot
