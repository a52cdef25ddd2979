// A server with a tiny model, on a thread of its own.
#pragma once
#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <thread>

#include "serve/client.h"
#include "serve/server.h"
#include "train/support.h"

namespace longshot {

class ServeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<ScratchDir>();
    write_token_set(*dir_ / "data", 3000);
  }
  static void TearDownTestSuite() { dir_.reset(); }

  // Trained until it makes words.
  static fs::path run_dir(const std::string& position) {
    fs::path out = *dir_ / position;
    if (!fs::exists(out)) {
      TrainRequest request = small_request(*dir_ / "data", out, 150);
      request.model.position = position, request.train.save_every = 150;
      trained(request);
    }
    return out;
  }

  void start(ServeConfig config = {}, const std::string& position = "alibi") {
    stop();
    config.http.port = 0;
    loaded_ = load_model(run_dir(position));
    server_ = std::make_unique<Server>(config);
    port_ = server_->port();
    ending_ = false;
    thread_ = std::thread([this] {
      Context context(1);
      server_->serve(context, loaded_, "tiny", [this] { return ending_.load(); });
    });
    while (get("/health").status == 503) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void stop() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }
  void TearDown() override { stop(); }

  Answer ask(const std::string& bytes) const {
    Client client(port_);
    client.send(bytes);
    return client.answer();
  }
  Answer get(const std::string& path, const std::string& more = "") const { return ask(get_text(path, more)); }
  Answer post(const std::string& path, const Json& body) const { return ask(post_text(path, body.dump())); }
  Answer complete(const Json& body) const { return post("/v1/completions", body); }

  // A number that /metrics shows.
  double metric(const std::string& name) const {
    const std::string text = get("/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  static bool comes_true(const std::function<bool()>& holds) {
    for (const double end = seconds_now() + 30; seconds_now() < end;) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  static inline std::unique_ptr<ScratchDir> dir_;
  LoadedModel loaded_;
  std::unique_ptr<Server> server_;
  int port_ = 0;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace longshot
