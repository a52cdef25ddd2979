// Clients that mean no good, and clients that are broken.
#include "serve/support.h"

namespace longshot {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class ServeHostile : public ServeTest {
 protected:
  static ServeConfig strict() {
    ServeConfig config;
    config.http.header_bytes = 4096, config.http.body_bytes = 20'000;
    config.http.header_seconds = 0.4, config.http.body_seconds = 0.4, config.http.write_seconds = 0.4;
    return config;
  }
  // Whatever came before, others are served.
  void expect_well() const { EXPECT_EQ(complete({{"prompt", "a"}, {"max_tokens", 1}}).status, 200); }
};

TEST_F(ServeHostile, HugeHeadersAndBodies) {
  start(strict());
  EXPECT_EQ(get("/health", "X: " + std::string(5000, 'x') + "\r\n").status, 431);
  std::string many;
  for (int i = 0; i < 2000; ++i) many += fmt::format("X-{}: y\r\n", i);
  EXPECT_EQ(get("/health", many).status, 431);
  EXPECT_EQ(ask("GET /" + std::string(6000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 431);
  EXPECT_EQ(ask(post_text("/tokenize", std::string(30'000, 'x'))).status, 413);
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  EXPECT_EQ(ask(head + "Content-Length: 99999999999\r\n\r\n").status, 413) << "said before it is sent";
  EXPECT_EQ(ask(head + "Content-Length: 99999999999999999999999\r\n\r\n").status, 400);
  EXPECT_EQ(ask(head + "Content-Length: -1\r\n\r\n").status, 400);
  EXPECT_EQ(ask(head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}").status, 400);
  EXPECT_EQ(ask(head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}").status, 400);
  expect_well();
}

TEST_F(ServeHostile, ChunksWithoutEnd) {
  start(strict());
  Client client(port_);
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n");
  bool open = true;
  for (int i = 0; i < 1000 && open; ++i) open = client.send("64\r\n" + std::string(100, ' ') + "\r\n");
  EXPECT_EQ(client.answer().status, 413);
  Client slow(port_);  // a byte now and then
  slow.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n");
  const double start = seconds_now();
  while (seconds_now() - start < 5 && slow.send("1\r\n \r\n") && !slow.closes(0.05)) continue;
  EXPECT_LT(seconds_now() - start, 5);
  const std::string body = R"({"content":"ab"})";
  const std::string good = fmt::format(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
      body.size(), body);
  EXPECT_EQ(ask(good).json()["count"], 2);
  expect_well();
}

TEST_F(ServeHostile, SlowHeadersAndIdleConnectionsEnd) {
  start(strict());
  Client idle(port_), slow(port_), half(port_);
  half.send(post_text("/tokenize", "{\"content\": \"abc\"}").substr(0, 120));
  const double start = seconds_now();
  for (const char c : get_text("/health", "X-Long: " + std::string(200, 'x') + "\r\n")) {
    if (!slow.send(std::string(1, c)) || slow.closes(0.02)) break;
  }
  EXPECT_TRUE(slow.closes(1));
  EXPECT_TRUE(idle.closes(2));
  EXPECT_TRUE(half.closes(2));
  EXPECT_LT(seconds_now() - start, 6);
  expect_well();
}

TEST_F(ServeHostile, NotHttp) {
  start(strict());
  EXPECT_EQ(ask("\x16\x03\x01\x02 hello there\r\n\r\n").status, 400);
  EXPECT_EQ(ask("GET /health\r\n\r\n").status, 400);
  EXPECT_EQ(ask("GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n").status, 400);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost localhost\r\n\r\n").status, 400);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").status, 400);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\n\r\n").status, 400) << "no host";
  EXPECT_EQ(ask("BREW /health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 405);
  EXPECT_EQ(ask("DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 405);
  { Client nothing(port_); }
  expect_well();
}

TEST_F(ServeHostile, BadJson) {
  start(strict());
  const auto status = [&](const std::string& body) { return ask(post_text("/v1/completions", body)).status; };
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"), std::string("\"x\""),
        std::string(R"({"prompt":"a","prompt":"b"})"), std::string(R"({"prompt":"a"} x)"), std::string(5000, '['),
        std::string("{\"prompt\":\"\xFF\"}"), std::string("{\"prompt\":\"\xC3\"}"),
        std::string("{\"prompt\":\"a\0\"}", 14), std::string(R"({"prompt":"\ud800"})"),
        std::string(R"({"prompt":"a","max_tokens":1e99})"),
        std::string(R"({"prompt":"a","max_tokens":99999999999999999999})"), std::string(R"({"prompt":[[[[]]]]})"),
        std::string(R"({"prompt":"a","seed":1.5})"), std::string(R"({"prompt":"a","top_k":-1})"),
        std::string(R"({"prompt":[1,2,-3]})"), std::string(R"({"prompt":[4294967296]})")}) {
    EXPECT_EQ(status(body), 400) << body.substr(0, 100);
  }
  std::string deep;
  for (int i = 0; i < 3000; ++i) deep += "{\"a\":";
  EXPECT_EQ(status(deep), 400);
  const Answer form =
      ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: "
          "14\r\n\r\n{\"prompt\":\"a\"}");
  EXPECT_EQ(form.status, 415) << "what a form of another site can send";
  expect_well();
}

TEST_F(ServeHostile, PathTricks) {
  start(strict());
  for (const char* path :
       {"/../etc/passwd", "//", "/./health", "/health/", "/%2e%2e/%2e%2e/etc/passwd", "/page.css/../health", "/HEALTH",
        "/health%00", "/health;x", "*", "http://localhost/health", "/\xFF"}) {
    EXPECT_THAT(get(path).status, AnyOf(404, 400)) << path;
  }
  EXPECT_EQ(get("/health?x=/../..").status, 200) << "a query is no part of the path";
  const std::string error = get("/<script>alert(1)</script>\x01").body;
  EXPECT_EQ(error.find('\x01'), std::string::npos);
}

TEST_F(ServeHostile, OtherHostsAndOrigins) {
  ServeConfig config = strict();
  config.allowed_hosts = {"Box.example"};
  start(config);
  const auto status = [&](const std::string& host, const std::string& more = "") {
    return ask(fmt::format("GET /v1/models HTTP/1.1\r\nHost: {}\r\n{}\r\n", host, more)).status;
  };
  for (const char* good :
       {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:80", "192.168.1.5", "box.example:8080"}) {
    EXPECT_EQ(status(good), 200) << good;
  }
  for (const char* bad : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "",
                          "box.example.evil", "localhost@evil.example"}) {
    EXPECT_EQ(status(bad), 403) << bad;
  }
  EXPECT_EQ(status("localhost:8080", "Origin: http://localhost:8080\r\n"), 200);
  for (const char* bad :
       {"http://evil.example", "null", "http://localhost:8081", "http://localhost:8080.evil.example", ""}) {
    EXPECT_EQ(status("localhost:8080", fmt::format("Origin: {}\r\n", bad)), 403) << bad;
  }
  const Answer preflight =
      ask("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n");
  EXPECT_EQ(preflight.status, 403);
  EXPECT_EQ(preflight.headers.count("access-control-allow-origin"), 0u);
}

TEST_F(ServeHostile, OldAndPipelinedRequests) {
  start(strict());
  Client old(port_);
  old.send("GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(old.answer().status, 200);
  EXPECT_TRUE(old.closes(3)) << "HTTP/1.0 ends with the answer";
  Client stream(port_);
  const std::string body = R"({"prompt":"a","max_tokens":5,"stream":true,"seed":1})";
  stream.send(
      fmt::format("POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: "
                  "application/json\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body));
  const Answer streamed = stream.answer();
  EXPECT_EQ(streamed.headers.count("transfer-encoding"), 0u);
  EXPECT_GE(events_of(streamed.body).size(), 2u);

  Client pipelined(port_);
  std::string all;
  for (int i = 0; i < 5; ++i) {
    const std::string one = fmt::format(R"({{"prompt":"a","max_tokens":{},"stream":{}}})", i + 1, i % 2 == 0);
    all += post_text("/v1/completions", one);
  }
  pipelined.send(all + get_text("/health"));
  for (int i = 0; i < 5; ++i) {
    const Answer a = pipelined.answer();
    EXPECT_EQ(a.status, 200);
    EXPECT_TRUE(i % 2 == 0 || a.json()["usage"]["completion_tokens"] == i + 1) << "in order";
  }
  EXPECT_EQ(pipelined.answer().json()["status"], "ok");
  Client head(port_);
  head.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + get_text("/health", "Connection: close\r\n"));
  EXPECT_THAT(head.take_until("\r\n\r\n"), HasSubstr("200 OK"));
  EXPECT_EQ(head.answer().json()["status"], "ok") << "no body stands between";
  Client careful(port_);
  const std::string text = R"({"content":"ab"})";
  careful.send(
      fmt::format("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: "
                  "100-continue\r\nContent-Length: {}\r\n\r\n",
                  text.size()));
  EXPECT_THAT(careful.take_until("\r\n\r\n"), HasSubstr("100 Continue"));
  careful.send(text);
  EXPECT_EQ(careful.answer().json()["count"], 2);
}

TEST_F(ServeHostile, AClientThatReadsNothingIsCutOffAndHoldsUpNobody) {
  ServeConfig config = strict();
  config.engine.slots = 2, config.engine.length = 300'000, config.http.unread_bytes = 100'000;
  start(config);
  Client greedy(port_, 4096);
  greedy.send(post_text("/v1/completions", R"({"prompt":"a","max_tokens":200000,"stream":true,"logprobs":20})"));
  EXPECT_TRUE(comes_true([&] { return metric("longshot_texts_running") == 1; }));
  for (int i = 0; i < 5; ++i) expect_well();
  EXPECT_TRUE(comes_true([&] { return metric("longshot_texts_total{ended=\"asked\"}") == 1; })) << "not cut off";
  EXPECT_EQ(metric("longshot_texts_running"), 0);
}

TEST_F(ServeHostile, WhoGoesAwayIsForgotten) {
  ServeConfig config = strict();
  config.engine.slots = 2, config.engine.length = 300'000;
  start(config);
  for (const bool stream : {true, false}) {
    const double before = metric("longshot_texts_total{ended=\"asked\"}");
    std::vector<std::unique_ptr<Client>> clients;  // two are served, two wait
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<Client>(port_));
      clients.back()->send(
          post_text("/v1/completions", fmt::format(R"({{"prompt":"a","max_tokens":200000,"stream":{}}})", stream)));
    }
    EXPECT_TRUE(
        comes_true([&] { return metric("longshot_texts_running") == 2 && metric("longshot_texts_waiting") == 2; }));
    clients.clear();
    EXPECT_TRUE(comes_true([&] { return metric("longshot_texts_total{ended=\"asked\"}") == before + 4; }));
  }
  expect_well();
}

TEST_F(ServeHostile, TooManyTextsAreRefusedAndTooSlowOnesEnd) {
  ServeConfig config = strict();
  config.engine.slots = 1, config.engine.queue = 2, config.engine.length = 300'000, config.engine.seconds = 1.5;
  start(config);
  const std::string endless = R"({"prompt":"a","max_tokens":200000,"temperature":0})";
  Client one(port_), two(port_), three(port_);
  for (Client* c : {&one, &two, &three}) c->send(post_text("/v1/completions", endless));
  EXPECT_TRUE(comes_true([&] { return metric("longshot_texts_running") + metric("longshot_texts_waiting") == 3; }));
  const Answer full = complete({{"prompt", "a"}, {"max_tokens", 1}});
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.headers.at("retry-after"), "1");
  for (Client* c : {&one, &two, &three}) {
    const Answer late = c->answer();
    EXPECT_EQ(late.status, 504);
    EXPECT_THAT(late.error(), HasSubstr("--max-seconds"));
  }
  EXPECT_TRUE(comes_true([&] { return complete({{"prompt", "a"}, {"max_tokens", 1}}).status == 200; }));
}

TEST_F(ServeHostile, ConnectionsAreCounted) {
  ServeConfig config = strict();
  config.http.connections = 4, config.http.header_seconds = 20;
  start(config);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<Client>(port_));
  Client fifth(port_);
  EXPECT_EQ(fifth.answer().status, 503);
  clients.clear();
  EXPECT_TRUE(comes_true([&] {
    try {
      return get("/health").status == 200;
    } catch (const Error&) {
      return false;
    }
  }));
}

TEST_F(ServeHostile, AnEndGivesUpWhatRuns) {
  ServeConfig config = strict();
  config.engine.length = 300'000;
  start(config);
  Client whole(port_), stream(port_);
  whole.send(post_text("/v1/completions", R"({"prompt":"a","max_tokens":200000})"));
  stream.send(post_text("/v1/completions", R"({"prompt":"a","max_tokens":200000,"stream":true})"));
  EXPECT_TRUE(comes_true([&] { return metric("longshot_texts_running") == 2; }));
  stream.take_until("data: ");
  const double start = seconds_now();
  std::thread ender([&] { stop(); });
  EXPECT_EQ(whole.answer().status, 503);
  EXPECT_THAT(stream.take_until("0\r\n\r\n"), HasSubstr("the server is stopping"));
  ender.join();
  EXPECT_LT(seconds_now() - start, 5);
}

}  // namespace
}  // namespace longshot
