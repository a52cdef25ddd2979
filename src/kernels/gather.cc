#include "kernels/gather.h"

namespace longshot {
namespace {

constexpr int64_t kRowGrain = 16, kColumnGrain = 32;  // least work of a thread

void scale_row(const float* from, float scale, int64_t n, float* to) {
  for (int64_t c = 0; c < n; ++c) to[c] = scale * from[c];
}

}  // namespace

void gather(Context& context, ConstMat from, RowList rows, float scale, Mat out) {
  context.ranges(out.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      scale_row(from.row(rows[static_cast<size_t>(i)]), scale, out.cols, out.row(i));
    }
  });
}

void gather(Context& context, const Weight& from, RowList rows, float scale, Mat out) {
  if (!from.is_stored()) return gather(context, from.values, rows, scale, out);
  context.ranges(out.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) expand_row(from.stored, rows[static_cast<size_t>(i)], scale, out.row(i));
  });
}

void scatter(Context& context, ConstMat from, RowList rows, float scale, Mat to) {
  context.ranges(from.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      scale_row(from.row(i), scale, from.cols, to.row(rows[static_cast<size_t>(i)]));
    }
  });
}

void scatter_add(Context& context, ConstMat from, RowList rows, float scale, Mat to) {
  context.ranges(from.cols, kColumnGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < from.rows; ++i) {
      const float* source = from.row(i);
      float* target = to.row(rows[static_cast<size_t>(i)]);
      for (int64_t c = begin; c < end; ++c) target[c] += scale * source[c];
    }
  });
}

}  // namespace longshot
