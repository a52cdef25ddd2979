// Who may ask: the Host and Origin of a request, and keys.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "serve/http.h"

namespace longshot {

// A page of another site that a user of this machine visits can send requests here (and, with a name that it lets point
// here, even read the answers). So a Host must be an address, localhost or a name that was allowed, and an Origin, which
// browsers send, must be the server's own page.
class Guard {
 public:
  // `key_file`: a key a line, or "" for none; lines that begin with # do not count.
  Guard(std::vector<std::string> hosts, const std::string& key_file);

  // The refusal, or nothing.
  std::optional<HttpReply> refuse_origin(const HttpRequest& request) const;
  // Where there are keys, one of them must come as "Authorization: Bearer KEY". The time does not tell how much of it fits.
  std::optional<HttpReply> refuse_key(const HttpRequest& request) const;
  bool has_keys() const { return !keys_.empty(); }

 private:
  bool allows_host(const std::string& host) const;
  std::vector<std::string> hosts_, keys_;
};

// Equal, in a time that depends on the lengths alone.
bool equal_in_constant_time(const std::string& a, const std::string& b);

}  // namespace longshot
