#include "kernels/gemm.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/tile_product.h"

namespace longshot {
namespace {

// Columns of B are packed for all threads, as many as kPackedFloats hold (they stay in the shared cache). Then threads
// take blocks of at most kHeight rows of A and C and go through the inner dimension in steps of kDepth, so that a panel of B
// stays in the first cache and the block of C in the second.
constexpr int64_t kDepth = 512, kHeight = 48, kPackedFloats = 1 << 19;

enum class Form { kNT, kNN, kTN };

struct Product {
  Form form;
  ConstMat a, b;
  Mat c;
  int64_t m, n, k;
  bool accumulate;
};

// Of each thread: [kDepth, kHeight] of A^T, and [kHeight, kPanel] of the last columns of C.
constexpr int64_t kThreadFloats = kDepth * kHeight + kHeight * kPanel;

// All rows of B, kPanel columns from `column` on.
void pack_panel(const Product& g, int64_t column, float* to) {
  const int64_t count = std::min(kPanel, g.n - column);
  if (g.form == Form::kNT) return pack_panels(g.b.row(column), g.b.stride, count, g.k, to);
  for (int64_t k = 0; k < g.k; ++k, to += kPanel) {
    std::memcpy(to, g.b.row(k) + column, sizeof(float) * static_cast<size_t>(count));
    if (count < kPanel) std::fill(to + count, to + kPanel, 0.0f);
  }
}

// Rows of a block: few enough that each thread gets four, a multiple of every register block's rows.
int64_t block_height(int64_t rows, int threads) {
  const int64_t blocks = 4 * threads;
  return std::clamp<int64_t>(round_up((rows + blocks - 1) / blocks, 12), 24, kHeight);
}

// Rows [i, i + rows) and columns [j, j + columns) of C, inner dimension [k, k + depth).
struct Block {
  int64_t i, rows, j, columns, k, depth;
  const float* b;  // packed, from row k of column j on
  float* own;      // the thread's memory
};

void multiply_block(const Product& g, const Block& at) {
  TileProduct p{.a = nullptr,
                .a_stride = 0,
                .a_transposed = g.form == Form::kTN,
                .b = at.b,
                .b_stride = kPanel,
                .b_panel = g.k * kPanel,
                .c = g.c.row(at.i) + at.j,
                .c_stride = g.c.stride,
                .m = at.rows,
                .n = at.columns / kPanel * kPanel,
                .k = at.depth,
                .accumulate = g.accumulate || at.k > 0};
  if (g.form == Form::kTN) {
    for (int64_t k = 0; k < at.depth; ++k)
      std::memcpy(at.own + k * kHeight, g.a.row(at.k + k) + at.i, sizeof(float) * static_cast<size_t>(at.rows));
    p.a = at.own, p.a_stride = kHeight;
  } else {
    p.a = g.a.row(at.i) + at.k, p.a_stride = g.a.stride;
  }
  if (p.n > 0) tile_product(p);
  const int64_t rest = at.columns - p.n;
  if (rest == 0) return;
  // Columns that do not fill a panel go through memory of the thread's own.
  float* edge = at.own + kDepth * kHeight;
  p.b = at.b + p.n / kPanel * p.b_panel;
  float* c = p.c + p.n;
  p.c = edge, p.c_stride = kPanel, p.n = kPanel;
  const bool add = p.accumulate;
  p.accumulate = false;
  tile_product(p);
  for (int64_t r = 0; r < at.rows; ++r) {
    for (int64_t j = 0; j < rest; ++j)
      c[r * g.c.stride + j] = edge[r * kPanel + j] + (add ? c[r * g.c.stride + j] : 0.0f);
  }
}

void multiply(Context& context, const Product& g) {
  assert(g.c.rows == g.m && g.c.cols == g.n);
  if (g.m == 0 || g.n == 0) return;
  const ZoneTimer timer(context, Zone::kGemm);
  if (g.k == 0 && !g.accumulate) {
    for (int64_t i = 0; i < g.m; ++i) std::fill_n(g.c.row(i), g.n, 0.0f);
  }
  const int64_t width =
      std::clamp<int64_t>(kPackedFloats / std::max<int64_t>(g.k, 1) / kPanel * kPanel, kPanel, round_up(g.n, kPanel));
  const int64_t height = block_height(g.m, context.active()), blocks = (g.m + height - 1) / height;
  float* packed =
      context.scratch(width * g.k + context.threads() * kThreadFloats).data();  // [width / kPanel, k, kPanel]
  float* owned = packed + width * g.k;
  context.team(g.m * g.n * g.k > (1 << 16), [&](const Team& team) {
    float* own = owned + team.thread() * kThreadFloats;
    for (int64_t j = 0; j < g.n; j += width) {
      const int64_t columns = std::min(width, g.n - j), panels = (columns + kPanel - 1) / kPanel;
      team.shares(panels, [&](int64_t p) { pack_panel(g, j + p * kPanel, packed + p * g.k * kPanel); });
      team.tasks(blocks, [&](int64_t block) {
        const int64_t i = block * height, rows = std::min(height, g.m - i);
        for (int64_t k = 0; k < g.k; k += kDepth) {
          multiply_block(g, {i, rows, j, columns, k, std::min(kDepth, g.k - k), packed + k * kPanel, own});
        }
      });
    }
  });
}

}  // namespace

void gemm_nt(Context& context, ConstMat a, ConstMat b, Mat c, bool accumulate) {
  assert(a.cols == b.cols);
  multiply(context, {Form::kNT, a, b, c, a.rows, b.rows, a.cols, accumulate});
}
void gemm_nn(Context& context, ConstMat a, ConstMat b, Mat c, bool accumulate) {
  assert(a.cols == b.rows);
  multiply(context, {Form::kNN, a, b, c, a.rows, b.cols, a.cols, accumulate});
}
void gemm_tn(Context& context, ConstMat a, ConstMat b, Mat c, bool accumulate) {
  assert(a.rows == b.rows);
  multiply(context, {Form::kTN, a, b, c, a.cols, b.cols, a.rows, accumulate});
}

}  // namespace longshot
