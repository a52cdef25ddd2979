// A model, and runs while they train, for clients of HTTP.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/engine.h"
#include "serve/http_server.h"

namespace longshot {

struct ServeConfig {
  HttpConfig http{};
  EngineConfig engine{};
  std::string api_key_file{};                // a key a line; empty: no key is asked for
  std::vector<std::string> allowed_hosts{};  // names that a request's Host may have, besides addresses and localhost
  std::vector<std::string> runs{};           // directories of runs for the live view

  void fields(Options& o);
  void validate() const;
};

class Server {
 public:
  // Listens at once: /health says that the model is being loaded until serve() is called. Error where that is not possible.
  explicit Server(const ServeConfig& config);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  bool has_keys() const;

  // Serves the model, computing on the calling thread, until asked to stop; what is being made then is given up. `name` is
  // what clients call the model. Nothing is answered afterwards.
  void serve(Context& context, LoadedModel& loaded, const std::string& name, const std::function<bool()>& should_stop);
  // Serves the live view alone.
  void serve_runs(const std::function<bool()>& should_stop);

 private:
  struct State;
  class Ending;
  std::unique_ptr<State> state_;
};

}  // namespace longshot
