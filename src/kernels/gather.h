// Rows picked from a matrix and put back.
#pragma once
#include <cstring>
#include <span>
#include <vector>

#include "base/context.h"
#include "base/view.h"
#include "kernels/product.h"

namespace longshot {

using RowList = std::span<const int32_t>;

// out[i] = scale from[rows[i]]
void gather(Context& context, ConstMat from, RowList rows, float scale, Mat out);
void gather(Context& context, const Weight& from, RowList rows, float scale, Mat out);
// to[rows[i]] = scale from[i]. REQUIRES: no row twice.
void scatter(Context& context, ConstMat from, RowList rows, float scale, Mat to);
// The rows of a matrix, times a scale, each with the row of another that it is for.
struct RowsFor {
  ConstMat from;
  RowList rows;
  float scale = 1;
};
// to[rows[i]] += scale from[i]. A row may come twice: threads share out columns, so that the order of sums is fixed.
void scatter_add(Context& context, const RowsFor& x, Mat to);
// The same by groups of the rows of `from`. `order` is room that is used again.
void scatter_add(Context& context, const RowsFor& x, Mat to, const RowGroups& groups, std::vector<uint64_t>& order);

// to[r] = from[row_of(r)]
template <class F>
void copy_rows(Context& context, ConstMat from, F&& row_of, Mat to) {
  context.ranges(to.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(to.row(r), from.row(row_of(r)), sizeof(float) * static_cast<size_t>(to.cols));
    }
  });
}

// x = 0. Rows are dense.
inline void clear(Mat x) { std::memset(x.data, 0, sizeof(float) * static_cast<size_t>(x.rows * x.cols)); }

}  // namespace longshot
