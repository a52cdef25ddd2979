// OpenMP enters here. Loop bodies must not throw.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

namespace longshot {

namespace fs = std::filesystem;

// Threads that memory is laid out for. Default: the cores this process may run on.
void set_threads(int count);
int threads();
// Threads that loops use: threads(), or fewer while other runs share the cores.
int active_threads();

// Runs that share a machine share its cores: two that spin for the same two cores are slower than one after the other.
// From now on this process counts among the runs that `registry` knows of, until it ends.
void share_cores(const fs::path& registry = fs::temp_directory_path() / "longshot-runs");
// active_threads() = threads() / runs, at least 1. A few system calls, none before share_cores(); not inside a loop.
void update_share();

inline int thread_index() { return omp_get_thread_num(); }

// f(i) for i in [0, n), handed out one by one: for few, uneven, large pieces.
template <class F>
void parallel_tasks(int64_t n, F&& f) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(active_threads()) if (n > 1 && active_threads() > 1)
  for (int64_t i = 0; i < n; ++i) f(i);
}

// f(begin, end) over [0, n) cut into one contiguous range a thread, none shorter than `grain`.
template <class F>
void parallel_ranges(int64_t n, int64_t grain, F&& f) {
  const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, active_threads());
  if (parts == 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(parts))
  for (int64_t p = 0; p < parts; ++p) f(n * p / parts, n * (p + 1) / parts);
}

}  // namespace longshot
