// Where the time of a step goes: seconds spent in a few named zones, seen from the calling thread.
#pragma once
#include <array>
#include <chrono>

namespace longshot {

enum class Zone { kGemm, kAttentionForward, kAttentionBackward, kCrossEntropy, kOptimizer, kCount };
constexpr const char* kZoneNames[] = {"matrix products", "attention forward", "attention backward", "cross-entropy",
                                      "optimizer"};

inline std::array<double, static_cast<size_t>(Zone::kCount)> zone_seconds{};

// Adds its lifetime to a zone. Not for use inside parallel regions.
class ZoneTimer {
 public:
  explicit ZoneTimer(Zone zone) : zone_(zone) {}
  ZoneTimer(const ZoneTimer&) = delete;
  ZoneTimer& operator=(const ZoneTimer&) = delete;
  ~ZoneTimer() {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    zone_seconds[static_cast<size_t>(zone_)] += passed.count();
  }

 private:
  Zone zone_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace longshot
