#include "serve/server.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "serve/api.h"

namespace longshot {
namespace {

constexpr std::chrono::milliseconds kLookForStop{50};

}  // namespace

struct Server::State {
  explicit State(const ServeConfig& c)
      : config(c),
        guard(c.allowed_hosts, c.api_key_file),
        runs(c.runs.empty() ? nullptr : std::make_unique<LiveRuns>(c.runs)),
        api({guard, runs.get(), metrics}) {}

  ServeConfig config;
  ServeMetrics metrics;
  Guard guard;
  std::unique_ptr<LiveRuns> runs;
  Api api;
  std::atomic<const HttpServer*> listening{nullptr};  // for its number of connections
  std::unique_ptr<HttpServer> http;                   // the last: its thread uses the others

  // From here on nothing is answered; no thread but the caller's looks at the model or at the engine any more.
  void end() {
    api.set_model(std::nullopt, Api::Stage::kEnding);
    listening = nullptr;
    http.reset();
  }
};

class Server::Ending {
 public:
  explicit Ending(State& state) : state_(state) {}
  ~Ending() { state_.end(); }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  State& state_;
};

Server::Server(const ServeConfig& config) {
  config.validate();
  state_ = std::make_unique<State>(config);
  State& state = *state_;
  state.api.set_model(std::nullopt, Api::Stage::kLoading);
  state.http = std::make_unique<HttpServer>(
      config.http, [&state](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
        const HttpServer* http = state.listening;
        state.api.handle(request, exchange, http ? http->connections() : 0);
      });
  state.listening = state.http.get();
}

Server::~Server() = default;

int Server::port() const { return state_->http->port(); }
bool Server::has_keys() const { return state_->guard.has_keys(); }

void Server::serve(Context& context, LoadedModel& loaded, const std::string& name,
                   const std::function<bool()>& should_stop) {
  loaded.required_tokenizer();  // before anything is set up
  Engine engine(context, loaded, state_->config.engine, state_->metrics);
  const Ending ending(*state_);  // also where the engine throws
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  state_->api.set_model(ServedModel{.name = name,
                                    .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                                    .engine = &engine,
                                    .metrics = &state_->metrics},
                        Api::Stage::kReady);
  engine.run(should_stop);
}

void Server::serve_runs(const std::function<bool()>& should_stop) {
  state_->api.set_model(std::nullopt, Api::Stage::kNoModel);
  const Ending ending(*state_);
  while (!should_stop()) std::this_thread::sleep_for(kLookForStop);
}

void ServeConfig::fields(Options& o) {
  o.add_files("runs", runs, "directories of runs to watch while they train");
  o.add("api-key-file", api_key_file, "a file with a key a line; clients must send one of them");
  o.add("allow-host", allowed_hosts, "names that clients may call this server, besides addresses and localhost");
  http.fields(o);
  engine.fields(o);
  o.group("");
}

void ServeConfig::validate() const {
  http.validate();
  engine.validate();
}

}  // namespace longshot
