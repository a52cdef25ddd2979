#include "serve/error_reply.h"

#include <nlohmann/json.hpp>

namespace longshot {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "unavailable_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

Json error_json(int status, const std::string& message, const std::string& code) {
  Json error{{"message", message}, {"type", type_of(status)}, {"code", nullptr}};
  if (!code.empty()) error["code"] = code;
  return {{"error", error}};
}

HttpReply error_reply(int status, const std::string& message, const std::string& code) {
  HttpReply reply{.status = status, .body = dump_json(error_json(status, message, code)) + "\n"};
  if (status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 429 || status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

}  // namespace longshot
