// OpenMP enters here. Loop bodies must not throw.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace longshot {

// Threads used by every parallel loop and by GEMM. Default: the cores this process may run on.
void set_threads(int count);
int threads();

inline int thread_index() { return omp_get_thread_num(); }

// f(i) for i in [0, n), handed out one by one: for few, uneven, large pieces.
template <class F>
void parallel_tasks(int64_t n, F&& f) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads()) if (n > 1 && threads() > 1)
  for (int64_t i = 0; i < n; ++i) f(i);
}

// f(begin, end) over [0, n) cut into one contiguous range a thread, none shorter than `grain`.
template <class F>
void parallel_ranges(int64_t n, int64_t grain, F&& f) {
  const int64_t parts = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, threads());
  if (parts == 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(parts))
  for (int64_t p = 0; p < parts; ++p) f(n * p / parts, n * (p + 1) / parts);
}

}  // namespace longshot
