// Row blocks that stay in a core's cache while several row-wise kernels pass over them.
#pragma once
#include <algorithm>

#include "base/context.h"

namespace longshot {

constexpr int64_t kRowBlock = 16;

// f(first, count) over [0, rows) in blocks, on all threads.
template <class F>
void parallel_rows(Context& context, int64_t rows, F&& f) {
  context.ranges(rows, kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r += kRowBlock) f(r, std::min(kRowBlock, end - r));
  });
}

}  // namespace longshot
