#include "kernels/gemm.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/tile_product.h"

namespace longshot {
namespace {

// B is packed piece by piece for all threads: `depth` of its rows and as many columns as kPackedFloats hold, which stay in
// the second cache. Then threads take blocks of at most kHeight rows of A and C.
constexpr int64_t kHeight = 48, kPackedFloats = 1 << 18;
constexpr int64_t kPackedTogether = 4;      // panels
constexpr int64_t kWorthThreads = 1 << 16;  // multiplications

enum class Form { kNT, kNN, kTN };

struct Product {
  Form form;
  ConstMat a, b;
  Mat c;
  int64_t m, n, k;
  bool accumulate;
};

// A part of the product: columns [j, j + columns) of C, inner dimension [k, k + depth).
struct Step {
  int64_t j, columns, k, depth;
  int64_t panels() const { return (columns + kPanel - 1) / kPanel; }
};

// Panels [first, last) of the step, each [depth, kPanel].
void pack(const Product& g, const Step& s, int64_t first, int64_t last, float* packed) {
  const int64_t apart = s.depth * kPanel, column = s.j + first * kPanel;
  float* to = packed + first * apart;
  if (g.form == Form::kNT) {
    const int64_t count = std::min((last - first) * kPanel, g.n - column);
    return pack_panels(g.b.row(column) + s.k, g.b.stride, count, s.depth, to);
  }
  for (int64_t k = 0; k < s.depth; ++k) {
    const float* from = g.b.row(s.k + k) + column;
    int64_t p = 0;
    for (; p < std::min(last - first, (g.n - column) / kPanel); ++p)
      std::memcpy(to + p * apart + k * kPanel, from + p * kPanel, sizeof(float) * kPanel);
    if (p == last - first) continue;
    const int64_t count = g.n - column - p * kPanel;
    float* edge = to + p * apart + k * kPanel;
    std::fill(std::copy_n(from + p * kPanel, count, edge), edge + kPanel, 0.0f);
  }
}

// The inner dimension in equal steps, none longer than the blocking's. Only k decides: a row has the same bits whatever
// rows stand beside it.
int64_t depth_of_steps(int64_t k) {
  const int64_t longest = product_blocking().depth, steps = std::max<int64_t>((k + longest - 1) / longest, 1);
  return (k + steps - 1) / steps;
}

// How the threads share a step: equal runs of register blocks, at most kHeight rows each, over all columns, or over
// some of them where rows are few.
struct Shares {
  int64_t rows, unit, units, blocks;  // unit: rows of a register block
  int64_t panels, groups;

  Shares(const Product& g, const Step& s, int threads) : rows(g.m), unit(product_blocking().rows), panels(s.panels()) {
    constexpr int64_t kEach = 4;  // of a thread: so many that an uneven rest does not matter
    units = (rows + unit - 1) / unit;
    blocks = std::min(round_up((units * unit + kHeight - 1) / kHeight, threads), units);
    groups = std::clamp<int64_t>(kEach * threads / blocks, 1, std::max<int64_t>(panels / kPackedTogether, 1));
  }
  int64_t count() const { return blocks * groups; }
  struct Range {
    int64_t first, last;
  };
  Range rows_of(int64_t i) const {
    const int64_t block = i / groups;
    return {units * block / blocks * unit, std::min(units * (block + 1) / blocks * unit, rows)};
  }
  // Whole groups of panels, so that register blocks do not straddle.
  Range panels_of(int64_t i) const {
    const int64_t all = (panels + kPackedTogether - 1) / kPackedTogether, group = i % groups;
    return {all * group / groups * kPackedTogether, std::min(all * (group + 1) / groups * kPackedTogether, panels)};
  }
};

// Rows [i, i + rows) of C.
struct Block {
  int64_t i, rows;
  const float* b;  // packed
  float* own;      // the thread's memory: [depth, kHeight] of A^T, and [kHeight, kPanel] of the last columns of C
};

// own[k, r] = a[k, r]
void pack_rows(const Product& g, const Step& s, const Block& at) {
  for (int64_t k = 0; k < s.depth; ++k) {
    const float* from = g.a.row(s.k + k) + at.i;
    float* to = at.own + k * kHeight;
    int64_t r = 0;
    for (; r + kPanel <= at.rows; r += kPanel) std::memcpy(to + r, from + r, sizeof(float) * kPanel);
    for (; r < at.rows; ++r) to[r] = from[r];
  }
}

void multiply_block(const Product& g, const Step& s, const Block& at) {
  TileProduct p{.a = nullptr,
                .a_stride = 0,
                .a_transposed = g.form == Form::kTN,
                .b = at.b,
                .b_stride = kPanel,
                .b_panel = s.depth * kPanel,
                .c = g.c.row(at.i) + s.j,
                .c_stride = g.c.stride,
                .m = at.rows,
                .n = s.columns / kPanel * kPanel,
                .k = s.depth,
                .accumulate = g.accumulate || s.k > 0};
  if (g.form == Form::kTN) {
    pack_rows(g, s, at);
    p.a = at.own, p.a_stride = kHeight;
  } else {
    p.a = g.a.row(at.i) + s.k, p.a_stride = g.a.stride;
  }
  if (p.n > 0) tile_product(p);
  const int64_t rest = s.columns - p.n;
  if (rest == 0) return;
  // Columns that do not fill a panel go through memory of the thread's own.
  float* edge = at.own + s.depth * kHeight;
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
  const int64_t depth = depth_of_steps(g.k);
  const int64_t width = std::min(kPackedFloats / std::max<int64_t>(depth, 1) / kPanel * kPanel, round_up(g.n, kPanel));
  const int threads = g.m * g.n * g.k <= kWorthThreads ? 1 : context.active();
  const int64_t thread_floats = round_up(depth * kHeight + kHeight * kPanel, kPanel);
  float* packed = context.scratch(width * depth + context.threads() * thread_floats).data();
  float* owned = packed + width * depth;
  for (int64_t j = 0; j < g.n; j += width) {
    for (int64_t k = 0; k < g.k; k += depth) {
      const Step s{j, std::min(width, g.n - j), k, std::min(depth, g.k - k)};
      const int64_t together = threads == 1 ? s.panels() : kPackedTogether;
      context.tasks((s.panels() + together - 1) / together,
                    [&](int64_t i) { pack(g, s, i * together, std::min((i + 1) * together, s.panels()), packed); });
      const Shares shares(g, s, threads);
      context.tasks(shares.count(), [&](int64_t i, int thread) {
        const auto [first, last] = shares.rows_of(i);
        const auto [panel, end] = shares.panels_of(i);
        const Step part{j + panel * kPanel, std::min(end * kPanel, s.columns) - panel * kPanel, k, s.depth};
        multiply_block(g, part,
                       {first, last - first, packed + panel * s.depth * kPanel, owned + thread * thread_floats});
      });
    }
  }
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
