// What the server counts, as Prometheus reads it. Any thread may count.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "generate/continuation.h"

namespace longshot {

class ServeMetrics {
 public:
  void count_reply(const std::string& route, int status);
  void count_prompt(int64_t tokens);
  void count_token();
  void count_first_token(double seconds);  // since the request came
  void count_end(Ended ended);
  void count_step(double seconds);

  // Of this moment.
  struct Gauges {
    int64_t connections = 0, running = 0, waiting = 0, slots = 0;
    int64_t cache_bytes = 0;
  };
  std::string text(const Gauges& gauges) const;

 private:
  static constexpr std::array kBounds{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0};

  mutable std::mutex mutex_;
  double start_ = seconds_now();
  std::map<std::pair<std::string, int>, int64_t> replies_;
  int64_t prompt_tokens_ = 0, tokens_ = 0, steps_ = 0, first_tokens_ = 0;
  double step_seconds_ = 0, first_seconds_ = 0;
  std::array<int64_t, kBounds.size()> below_{};  // first tokens within each bound
  std::map<Ended, int64_t> ended_;
};

}  // namespace longshot
