// What a computation runs on: threads, scratch memory and clocks. Whatever computes takes one as its first argument, and
// nothing else is shared: several threads of a program can each work with a context of their own.
// A context serves one thread at a time.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

#include "base/choice.h"
#include "base/pool.h"
#include "base/threads.h"
#include "base/workspace.h"

namespace longshot {

// Where the time of a step goes: seconds spent in a few named zones, seen from the calling thread.
enum class Zone { kGemm, kAttentionForward, kAttentionBackward, kCrossEntropy, kOptimizer, kCount };
constexpr const char* kZoneNames[] = {"matrix products", "attention forward", "attention backward", "cross-entropy",
                                      "optimizer"};
using Zones = std::array<double, static_cast<size_t>(Zone::kCount)>;

// Of the operands of products. Sums, and all that is no product, are floats.
enum class Precision { kF32, kBf16 };
constexpr Choice<Precision> kPrecisions[] = {{"f32", Precision::kF32}, {"bf16", Precision::kBf16}};

class Context {
 public:
  explicit Context(int threads = 0);  // 0: the cores this process may run on
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Threads that memory is laid out for.
  int threads() const { return threads_; }
  // Threads that loops use: threads(), or fewer while other runs share the cores.
  int active() const { return active_; }
  void set_active(int count) { active_ = std::clamp(count, 1, threads_); }

  // From now on this counts among the runs that share the machine's cores.
  void share_cores(CoreShare share = CoreShare());
  // active() = this run's part of threads(). A few system calls, none without share_cores(). Between steps, not in loops.
  void update_share();

  Precision precision() const { return precision_; }
  void set_precision(Precision precision) { precision_ = precision; }

  // f(i) or f(i, thread) for i in [0, n), handed out one by one: for few, uneven, large pieces.
  template <class F>
  void tasks(int64_t n, F&& f) {
    const auto body = [&f](int64_t i, int thread) {
      if constexpr (std::is_invocable_v<F&, int64_t, int>)
        f(i, thread);
      else
        f(i);
    };
    run_tasks(n, body);
  }

  // f(begin, end) or f(begin, end, thread) over [0, n) cut into one contiguous range a thread, none shorter than `grain`.
  template <class F>
  void ranges(int64_t n, int64_t grain, F&& f) {
    const auto body = [&f](int64_t begin, int64_t end, int thread) {
      if constexpr (std::is_invocable_v<F&, int64_t, int64_t, int>)
        f(begin, end, thread);
      else
        f(begin, end);
    };
    run_ranges(n, grain, body);
  }

  // Memory for one kernel's call, which must not call another that asks for it. It only grows, and keeps nothing.
  std::span<float> scratch(int64_t floats);

  // f() is called between loops, on the calling thread, and may run loops itself: what must be looked after now and then
  // while others compute. Empty: nothing.
  void call_between(std::function<void()> f) { between_ = std::move(f); }

  Zones zones{};  // seconds in each

 private:
  void run_tasks(int64_t n, BodyRef<int64_t, int> body);
  void run_ranges(int64_t n, int64_t grain, BodyRef<int64_t, int64_t, int> body);
  Pool& pool();
  void between();

  int threads_, active_;
  Precision precision_ = Precision::kF32;
  std::unique_ptr<Pool> pool_;
  std::optional<CoreShare> share_;
  std::function<void()> between_;
  bool is_between_ = false;
  Workspace memory_;
  std::span<float> scratch_;
};

// The precision of a context, while this lasts.
class PrecisionScope {
 public:
  PrecisionScope(Context& context, Precision precision) : context_(context), before_(context.precision()) {
    context_.set_precision(precision);
  }
  ~PrecisionScope() { context_.set_precision(before_); }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  Context& context_;
  Precision before_;
};

// Adds its lifetime to a zone. Not for use inside loops.
class ZoneTimer {
 public:
  ZoneTimer(Context& context, Zone zone) : seconds_(context.zones[static_cast<size_t>(zone)]) {}
  ZoneTimer(const ZoneTimer&) = delete;
  ZoneTimer& operator=(const ZoneTimer&) = delete;
  ~ZoneTimer() {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    seconds_ += passed.count();
  }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace longshot
