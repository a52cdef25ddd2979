// How row-wise work is shared among threads.
#pragma once
#include "base/context.h"

namespace longshot {

constexpr int64_t kRowGrain = 16, kColumnGrain = 64;  // least work of a thread

// f(first, count) over the rows of a matrix.
template <class F>
void split_rows(Context& context, int64_t rows, F&& f) {
  context.ranges(rows, kRowGrain, [&](int64_t begin, int64_t end) { f(begin, end - begin); });
}

}  // namespace longshot
