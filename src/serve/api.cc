#include "serve/api.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "base/version.h"
#include "report/assets.h"
#include "report/page.h"
#include "serve/assets.h"
#include "serve/error_reply.h"

namespace longshot {
namespace {

constexpr std::array kGets{"/", "/page.css", "/page.js", "/health", "/metrics", "/v1/models", "/runs"};
constexpr std::array kPosts{"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"};
constexpr const char* kModelsPath = "/v1/models/";

bool is_one_of(const auto& paths, const std::string& path) { return std::ranges::find(paths, path) != paths.end(); }

// Nothing from elsewhere, no script but the page's own, no frame around it.
HttpReply page_part(const char* type, std::string body) {
  return {.type = std::string(type) + "; charset=utf-8",
          .body = std::move(body),
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
                       "form-action 'none'; frame-ancestors 'none'"},
                      {"Referrer-Policy", "no-referrer"}}};
}

HttpReply json_reply(const Json& json) { return {.body = dump_json(json) + "\n"}; }

bool is_open(const std::string& path) {  // to whoever has no key
  return path == "/" || path == "/page.css" || path == "/page.js" || path == "/health";
}

bool is_json(const std::string& content_type) {
  std::string type = content_type.substr(0, content_type.find(';'));
  std::erase(type, ' ');
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return type == "application/json";
}

// What a route is called in the metrics: what clients make up does not become a name.
std::string route_of(const HttpRequest& request) {
  if (is_one_of(kGets, request.path) || is_one_of(kPosts, request.path)) return request.path;
  return request.path.starts_with(kModelsPath) ? "/v1/models" : "other";
}

}  // namespace

std::string model_name(const std::string& path) {
  fs::path p = fs::path(path).lexically_normal();
  if (p.filename().empty()) p = p.parent_path();
  return p.filename().string();
}

void Api::set_model(std::optional<ServedModel> served, Stage stage) {
  const std::lock_guard lock(mutex_);
  served_ = std::move(served);
  stage_ = stage;
}

std::optional<ServedModel> Api::served() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

void Api::handle(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange, int64_t connections) {
  std::optional<HttpReply> reply;
  try {
    reply = answer(request, exchange, connections);
  } catch (const Error& e) {
    reply = error_reply(e.kind() == Error::Kind::kUsage ? 400 : 500, e.what());
  } catch (const std::exception& e) {
    reply = error_reply(500, e.what());
  }
  if (!reply) return;
  parts_.metrics.count_reply(route_of(request), reply->status);
  exchange->reply(std::move(*reply));
}

std::optional<HttpReply> Api::answer(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                                     int64_t connections) {
  if (auto refused = parts_.guard.refuse_origin(request)) return refused;
  if (!is_open(request.path)) {
    if (auto refused = parts_.guard.refuse_key(request)) return refused;
  }
  const bool gets = is_one_of(kGets, request.path) || request.path.starts_with(kModelsPath);
  const bool posts = is_one_of(kPosts, request.path);
  if (!gets && !posts) return error_reply(404, fmt::format("there is no '{}' here", shown(request.path)));
  if (const std::string method = gets ? "GET" : "POST"; request.method != method) {
    HttpReply reply = error_reply(405, fmt::format("{} takes {}, not {}", request.path, method, shown(request.method)));
    reply.headers.emplace_back("Allow", method);
    return reply;
  }
  return gets ? get(request, connections) : post(request, exchange);
}

std::optional<HttpReply> Api::get(const HttpRequest& request, int64_t connections) const {
  const std::string& path = request.path;
  if (path == "/") return page_part("text/html", kServePage);
  if (path == "/page.css") return page_part("text/css", page_colours() + kPageStyle + kServeStyle);
  if (path == "/page.js") return page_part("text/javascript", kServeScript);
  if (path == "/health") return health();
  if (path == "/metrics") return metrics(connections);
  if (path == "/runs") return runs(request);
  return models(path == "/v1/models" ? "" : path.substr(std::string_view(kModelsPath).size()));
}

std::optional<HttpReply> Api::post(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) const {
  if (!is_json(request.content_type))
    return error_reply(
        415, fmt::format("the Content-Type must be application/json, but is '{}'", shown(request.content_type)));
  if (request.path == "/v1/chat/completions")
    return error_reply(400,
                       "this model has no chat template: it continues text. /v1/completions takes the text as 'prompt'",
                       "no_chat_template");
  const auto model = served();
  if (!model) return not_ready();
  const Tokenizer& tokenizer = *model->engine->loaded().tokenizer;
  if (request.path == "/tokenize") {
    const std::vector<int32_t> ids = tokenizer.encode(parse_tokenize(request.body).text);
    return json_reply({{"tokens", ids}, {"count", ids.size()}, {"start_id", tokenizer.start_id()}});
  }
  if (request.path == "/detokenize") {
    const std::vector<int32_t> ids = parse_detokenize(request.body).ids;
    for (const int32_t id : ids)
      require_usage(id < tokenizer.vocab_size(), "id {} is outside the vocabulary of {}", id, tokenizer.vocab_size());
    return json_reply({{"content", tokenizer.decode(ids)}});
  }
  answer_completion(*model, parse_completion(request.body), exchange);
  return std::nullopt;
}

HttpReply Api::not_ready() const {
  const std::lock_guard lock(mutex_);
  if (stage_ == Stage::kNoModel) return error_reply(404, "no model is served here, only runs", "no_model");
  return error_reply(503, stage_ == Stage::kEnding ? "the server is stopping" : "the model is being loaded");
}

HttpReply Api::health() const {
  const std::lock_guard lock(mutex_);
  const bool well = stage_ == Stage::kReady || stage_ == Stage::kNoModel;
  const char* word = stage_ == Stage::kReady     ? "ok"
                     : stage_ == Stage::kNoModel ? "no model"
                     : stage_ == Stage::kLoading ? "loading"
                                                 : "stopping";
  HttpReply reply = json_reply({{"status", word}, {"version", version()}});
  if (!well) reply.status = 503;
  return reply;
}

HttpReply Api::models(const std::string& wanted) const {
  const auto model = served();
  Json list = Json::array();
  if (model) {
    const LoadedModel& loaded = model->engine->loaded();
    const ModelConfig& config = loaded.info.model;
    list.push_back({{"id", model->name},
                    {"object", "model"},
                    {"created", model->created},
                    {"owned_by", "longshot"},
                    {"longshot",
                     {{"position", config.position},
                      {"train_length", config.length},
                      {"max_length", model->engine->length()},
                      {"vocabulary", config.vocab},
                      {"tokenizer", std::string(loaded.tokenizer->name())},
                      {"slots", model->engine->config().slots}}}});
  }
  if (wanted.empty()) return json_reply({{"object", "list"}, {"data", list}});
  if (model && wanted == model->name) return json_reply(list[0]);
  return error_reply(404, fmt::format("there is no model '{}' here", shown(wanted)), "model_not_found");
}

HttpReply Api::runs(const HttpRequest& request) const {
  if (!parts_.runs) return error_reply(404, "no runs are shown here: --runs DIR", "no_runs");
  LiveRuns::Snapshot snapshot = parts_.runs->snapshot();
  if (request.query == fmt::format("since={}", snapshot.version)) return {.status = 204};
  return {.type = "text/html; charset=utf-8",
          .body = std::move(snapshot.html),
          .headers = {{"X-Version", std::to_string(snapshot.version)}}};
}

HttpReply Api::metrics(int64_t connections) const {
  ServeMetrics::Gauges gauges{.connections = connections};
  if (const auto model = served()) {
    const Engine& engine = *model->engine;
    gauges.running = engine.running(), gauges.waiting = engine.waiting(), gauges.slots = engine.config().slots;
    gauges.cache_bytes = static_cast<int64_t>(engine.bytes());
  }
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = parts_.metrics.text(gauges)};
}

}  // namespace longshot
