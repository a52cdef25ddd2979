#include "serve/metrics.h"

#include <fmt/format.h>

namespace longshot {
namespace {

template <class T>
void add(std::string& out, const char* type, const char* name, const char* help, T value) {
  out += fmt::format("# HELP longshot_{0} {1}\n# TYPE longshot_{0} {2}\nlongshot_{0} {3}\n", name, help, type, value);
}

}  // namespace

void ServeMetrics::count_reply(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++replies_[{route, status}];
}

void ServeMetrics::count_prompt(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += tokens;
}

void ServeMetrics::count_token() {
  const std::lock_guard lock(mutex_);
  ++tokens_;
}

void ServeMetrics::count_first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  ++first_tokens_;
  first_seconds_ += seconds;
  for (size_t i = 0; i < kBounds.size(); ++i) below_[i] += seconds <= kBounds[i] ? 1 : 0;
}

void ServeMetrics::count_end(Ended ended) {
  const std::lock_guard lock(mutex_);
  ++ended_[ended];
}

void ServeMetrics::count_step(double seconds) {
  const std::lock_guard lock(mutex_);
  ++steps_;
  step_seconds_ += seconds;
}

std::string ServeMetrics::text(const Gauges& gauges) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  add(out, "gauge", "uptime_seconds", "Since the server began.", seconds_now() - start_);
  add(out, "gauge", "connections", "Open connections.", gauges.connections);
  add(out, "gauge", "slots", "Texts that can be made at once.", gauges.slots);
  add(out, "gauge", "texts_running", "Texts being made.", gauges.running);
  add(out, "gauge", "texts_waiting", "Texts that wait for a slot.", gauges.waiting);
  add(out, "gauge", "cache_bytes", "Memory of the keys, the values and the pass.", gauges.cache_bytes);
  add(out, "counter", "prompt_tokens_total", "Tokens of prompts.", prompt_tokens_);
  add(out, "counter", "generated_tokens_total", "Tokens made.", tokens_);
  add(out, "counter", "steps_total", "Passes over the texts.", steps_);
  add(out, "counter", "step_seconds_total", "Time in these.", step_seconds_);
  out += "# HELP longshot_texts_total Texts by what ended them.\n# TYPE longshot_texts_total counter\n";
  for (const auto& [name, value] : kEndings) {
    const auto found = ended_.find(value);
    out += fmt::format("longshot_texts_total{{ended=\"{}\"}} {}\n", name, found == ended_.end() ? 0 : found->second);
  }
  out +=
      "# HELP longshot_http_requests_total Requests by route and status.\n# TYPE longshot_http_requests_total "
      "counter\n";
  for (const auto& [key, count] : replies_) {
    out += fmt::format("longshot_http_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  }
  out += "# HELP longshot_first_token_seconds From a request to its first token.\n";
  out += "# TYPE longshot_first_token_seconds histogram\n";
  for (size_t i = 0; i < kBounds.size(); ++i) {
    out += fmt::format("longshot_first_token_seconds_bucket{{le=\"{}\"}} {}\n", kBounds[i], below_[i]);
  }
  out += fmt::format(
      "longshot_first_token_seconds_bucket{{le=\"+Inf\"}} {0}\nlongshot_first_token_seconds_sum {1}\n"
      "longshot_first_token_seconds_count {0}\n",
      first_tokens_, first_seconds_);
  return out;
}

}  // namespace longshot
