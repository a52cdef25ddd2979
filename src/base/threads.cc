#include "base/threads.h"

#include "base/error.h"

namespace longshot {
namespace {
int count_ = 0;  // 0: not chosen yet
}

void set_threads(int count) {
  require_usage(count >= 0 && count <= 1024, "threads must be 0 (all cores) to 1024, not {}", count);
  count_ = count > 0 ? count : omp_get_num_procs();
  omp_set_num_threads(count_);
}

int threads() {
  if (count_ == 0) set_threads(0);
  return count_;
}

}  // namespace longshot
