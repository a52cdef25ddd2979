// What is answered where.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "serve/completion.h"
#include "serve/guard.h"
#include "serve/live_runs.h"

namespace longshot {

// The name of a command's or a request's model that has none of its own: the last part of its path.
std::string model_name(const std::string& path);

class Api {
 public:
  struct Parts {
    const Guard& guard;
    LiveRuns* runs = nullptr;  // none: there is no live view
    ServeMetrics& metrics;
  };
  explicit Api(Parts parts) : parts_(parts) {}

  enum class Stage { kNoModel, kLoading, kReady, kEnding };
  // From any thread. Without a model the stage says why.
  void set_model(std::optional<ServedModel> served, Stage stage);

  void handle(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange, int64_t connections);

 private:
  // The answer, or nothing where it comes later.
  std::optional<HttpReply> answer(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                                  int64_t connections);
  std::optional<HttpReply> get(const HttpRequest& request, int64_t connections) const;
  std::optional<HttpReply> post(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) const;
  HttpReply health() const;
  HttpReply models(const std::string& wanted) const;
  HttpReply runs(const HttpRequest& request) const;
  HttpReply metrics(int64_t connections) const;
  std::optional<ServedModel> served() const;
  HttpReply not_ready() const;

  Parts parts_;
  mutable std::mutex mutex_;  // of what follows
  std::optional<ServedModel> served_;
  Stage stage_ = Stage::kNoModel;
};

}  // namespace longshot
