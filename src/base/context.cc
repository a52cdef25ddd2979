#include "base/context.h"

#include <omp.h>

#include "base/error.h"

namespace longshot {

void Team::run_shares(int64_t n, BodyRef<int64_t> body) const {
#pragma omp for schedule(static)
  for (int64_t i = 0; i < n; ++i) body(i);
}

void Team::run_tasks(int64_t n, BodyRef<int64_t> body) const {
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < n; ++i) body(i);
}

Context::Context(int threads) {
  require_usage(threads >= 0 && threads <= 1024, "threads must be 0 (all cores) to 1024, not {}", threads);
  threads_ = active_ = threads > 0 ? threads : omp_get_num_procs();
}

void Context::share_cores(CoreShare share) {
  share_ = std::move(share);
  update_share();
}

void Context::update_share() {
  if (share_) set_active(share_->of(threads_));
}

void Context::run_tasks(int64_t n, BodyRef<int64_t, int> body) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(active_) if (n > 1 && active_ > 1)
  for (int64_t i = 0; i < n; ++i) body(i, omp_get_thread_num());
}

void Context::run_ranges(int64_t n, int64_t grain, BodyRef<int64_t, int64_t, int> body) {
  const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, active_);
  if (parts == 1) {
    if (n > 0) body(0, n, 0);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(parts))
  for (int64_t p = 0; p < parts; ++p) body(n * p / parts, n * (p + 1) / parts, omp_get_thread_num());
}

void Context::run_team(bool worth, BodyRef<Team> body) {
#pragma omp parallel num_threads(active_) if (worth)
  body(Team(omp_get_thread_num()));
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
