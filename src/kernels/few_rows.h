// Products of a few rows with a matrix stored in f32 or bf16, or mapped, where reading the matrix is what takes the time.
#pragma once
#include <algorithm>

#include "base/context.h"
#include "kernels/panels.h"

namespace longshot {

// y = x W^T:   x[n, in], y[n, out], n <= few_rows(). Threads share out the panels, and each is read once.
void few_rows_product(Context& context, ConstMat x, const Panels& w, Mat y);
int64_t few_rows();
// Rows that so many are cut into to go through a panel together.
int64_t row_height(int64_t rows);

// Panels shared out in pieces, some for each thread: so large that handing them out costs nothing, so many that an uneven
// rest does not matter.
struct PanelPieces {
  int64_t panels, groups, count;
  PanelPieces(const Panels& w, int64_t rows, int threads);
  // first(count) is behind the last.
  int64_t first(int64_t piece) const { return std::min(groups * piece / count * kTogether, panels); }

 private:
  static constexpr int64_t kTogether = 4;  // panels that are read side by side
};

// One call, as the kernels see it.
struct FewRowsCall {
  const float* turned;  // rows of x in blocks of equal height, filled up with 0: [block][k, height]
  int64_t height;
  int64_t depth;  // of a step of the inner dimension
  const Panels& w;
  Mat y;
};

}  // namespace longshot
