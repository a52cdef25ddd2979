#include "base/error.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "serve/api.h"
#include "serve/server.h"

namespace longshot {
namespace {

class ServeCommand : public Command {
 public:
  Arguments arguments() const override { return {"[RUN]", 0, 1}; }

  void options(Options& o) override {
    config_.fields(o);
    model_.fields(o);
  }

  int run() override {
    require_usage(!args.empty() || !config_.runs.empty(), "longshot serve needs a RUN to serve or --runs to watch");
    model_.validate();
    catch_stop_signals();
    Server server(config_);
    print_address(server);
    if (args.empty()) {
      server.serve_runs(stop_requested);
      return 0;
    }
    Progress progress;
    try {
      ModelSession session(model_, args[0], progress);
      progress.note(fmt::format("{} is ready: {}, trained at length {}", args[0], session.loaded.info.model.position,
                                session.loaded.info.model.length));
      server.serve(session.context, session.loaded, model_name(args[0]), stop_requested);
    } catch (const Stopped&) {  // while it was loading
    }
    return 0;
  }

 private:
  void print_address(const Server& server) const {
    const std::string& host = config_.http.host;
    fmt::print(stderr, "listening on http://{}:{}/; Ctrl-C ends\n",
               host.find(':') == std::string::npos ? host : "[" + host + "]", server.port());
    const bool own = host == "localhost" || host == "::1" || host.starts_with("127.");
    if (!own && !server.has_keys())
      fmt::print(stderr, "whoever reaches {} can use this server: --api-key-file asks for a key\n", host);
    (void)std::fflush(stderr);
  }

  ServeConfig config_;
  ModelOptions model_;
};

}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }

}  // namespace longshot
