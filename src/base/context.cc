#include "base/context.h"

#include <sched.h>

#include "base/error.h"

namespace longshot {
namespace {

// That this process may run on.
int cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Context::Context(int threads) {
  require_usage(threads >= 0 && threads <= 1024, "threads must be 0 (all cores) to 1024, not {}", threads);
  threads_ = active_ = threads > 0 ? threads : cores();
}

void Context::share_cores(CoreShare share) {
  share_ = std::move(share);
  update_share();
}

void Context::update_share() {
  if (share_) set_active(share_->of(threads_));
}

// Its threads are started when a loop first needs them.
Pool& Context::pool() {
  if (!pool_) pool_ = std::make_unique<Pool>(threads_);
  return *pool_;
}

void Context::between() {
  if (!between_ || is_between_) return;
  is_between_ = true;
  between_();
  is_between_ = false;
}

void Context::run_tasks(int64_t n, BodyRef<int64_t, int> body) {
  pool().run(n, active_, body);
  between();
}

void Context::run_ranges(int64_t n, int64_t grain, BodyRef<int64_t, int64_t, int> body) {
  const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), n > 0 ? 1 : 0, active_);
  const auto part = [&](int64_t p, int thread) { body(n * p / parts, n * (p + 1) / parts, thread); };
  pool().run(parts, active_, part);
  between();
}

std::span<float> Context::scratch(int64_t floats) {
  if (static_cast<int64_t>(scratch_.size()) < floats) {
    memory_ = Workspace();
    scratch_ = {};
    memory_ = Workspace([&](Layout& at) { scratch_ = at.array<float>(floats); });
  }
  return scratch_;
}

}  // namespace longshot
