#include "serve/guard.h"

#include <arpa/inet.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "serve/error_reply.h"

namespace longshot {
namespace {

constexpr size_t kMostKeyFile = 1 << 20;

std::vector<std::string> read_keys(const std::string& path) {
  std::vector<std::string> keys;
  if (path.empty()) return keys;
  std::istringstream lines(read_text(path, kMostKeyFile));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  require_usage(!keys.empty(), "--api-key-file {}: no key in it; a key is a line", path);
  return keys;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

// "name", "name:80", "1.2.3.4:80", "[::1]:80" without the port.
std::string without_port(const std::string& host) {
  if (host.starts_with("[")) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.rfind(':'));
}

bool is_address(const std::string& host) {
  unsigned char room[16];
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    return ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), room) == 1;
  return ::inet_pton(AF_INET, host.c_str(), room) == 1;
}

}  // namespace

bool equal_in_constant_time(const std::string& a, const std::string& b) {
  volatile unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && !b.empty(); ++i) {
    difference = difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i % b.size()]));
  }
  return difference == 0;
}

Guard::Guard(std::vector<std::string> hosts, const std::string& key_file)
    : hosts_(std::move(hosts)), keys_(read_keys(key_file)) {
  for (std::string& host : hosts_) host = lower(host);
}

bool Guard::allows_host(const std::string& host) const {
  const std::string name = lower(without_port(host));
  return name == "localhost" || is_address(name) || std::ranges::find(hosts_, name) != hosts_.end();
}

std::optional<HttpReply> Guard::refuse_origin(const HttpRequest& request) const {
  if (!request.has_host) return error_reply(400, "a request needs one Host header");
  if (!allows_host(request.host))
    return error_reply(
        403, fmt::format("the host '{}' is none of this server's. --allow-host names more", shown(request.host)),
        "host_not_allowed");
  const std::string origin = lower(request.origin), host = lower(request.host);
  if (request.has_origin && origin != "http://" + host && origin != "https://" + host)
    return error_reply(403, fmt::format("pages of '{}' may not ask this server", shown(request.origin)),
                       "origin_not_allowed");
  return std::nullopt;
}

std::optional<HttpReply> Guard::refuse_key(const HttpRequest& request) const {
  if (keys_.empty()) return std::nullopt;
  constexpr std::string_view kScheme = "Bearer ";
  const bool bearer = lower(request.authorization.substr(0, kScheme.size())) == lower(std::string(kScheme));
  const std::string given = bearer ? request.authorization.substr(kScheme.size()) : "";
  bool found = false;
  for (const std::string& key : keys_) found = equal_in_constant_time(given, key) || found;
  if (found) return std::nullopt;
  return error_reply(401, given.empty() ? "a key is needed: Authorization: Bearer KEY" : "this is none of the keys",
                     "invalid_api_key");
}

}  // namespace longshot
