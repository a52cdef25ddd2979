#include "kernels/gemm.h"

#include <algorithm>
#include <cassert>

#include "kernels/bf16.h"
#include "kernels/gemm_steps.h"

namespace longshot {
namespace {

constexpr int64_t kHeight = 48;  // a multiple of kPanel

// Products of floats by tile_product. Rows of A are read in place, columns of A^T are copied first.
struct FloatKernel {
  static constexpr bool kAddsLast = true;
  bool rounded = false;  // operands are rounded to bf16 while they are copied

  static Shares::Most most() { return {product_blocking().rows, kHeight}; }
  static int64_t depth(int64_t k) { return equal_steps(k, product_blocking().depth); }
  static int64_t panel_floats(int64_t depth) { return depth * kPanel; }
  // [depth, kHeight] of A^T or [kHeight, depth] of A, and [kHeight, kPanel] of the last columns of C.
  static int64_t thread_floats(int64_t depth) { return (depth + kPanel) * kHeight; }

  void pack(const Product& g, const Step& s, Shares::Range panels, float* to) const;
  void multiply(const Product& g, const Step& s, const Block& at) const;

 private:
  void copy_rows(const Product& g, const Step& s, const Block& at) const;
};

void FloatKernel::pack(const Product& g, const Step& s, Shares::Range panels, float* to) const {
  const int64_t apart = panel_floats(s.depth), column = s.j + panels.first * kPanel, all = panels.last - panels.first;
  const int64_t columns = std::min(all * kPanel, g.n - column);
  if (g.stored.data) {
    for (int64_t p = 0; p < all; ++p) expand(g, {column + p * kPanel, s.k, s.depth}, to + p * apart);
  } else if (g.form == Form::kNT) {
    pack_panels(g.b.floats().row(column) + s.k, g.b.stride, columns, s.depth, to);
  } else {
    copy_strips({.x = g.b.row(s.k) + column,
                 .x_stride = g.b.stride,
                 .rows = s.depth,
                 .columns = columns,
                 .y = to,
                 .y_stride = kPanel,
                 .y_strip = apart});
  }
  if (rounded) round_to_bf16(to, to, all * apart);
}

// own[k, r] = a[k, r] of A^T; own[r, k] = a[r, k] of A.
void FloatKernel::copy_rows(const Product& g, const Step& s, const Block& at) const {
  if (g.form != Form::kTN) {
    for (int64_t r = 0; r < at.rows; ++r) rounded_floats(g.a.row(at.i + r) + s.k, at.own + r * s.depth, s.depth);
    return;
  }
  copy_strips({.x = g.a.row(s.k) + at.i,
               .x_stride = g.a.stride,
               .rows = s.depth,
               .columns = at.rows,
               .y = at.own,
               .y_stride = kHeight,
               .y_strip = kPanel});
  if (rounded) round_to_bf16(at.own, at.own, s.depth * kHeight);
}

void FloatKernel::multiply(const Product& g, const Step& s, const Block& at) const {
  const bool transposed = g.form == Form::kTN, copied = transposed || rounded;
  if (copied) copy_rows(g, s, at);
  TileProduct p{.a = copied ? at.own : g.a.floats().row(at.i) + s.k,
                .a_stride = transposed ? kHeight
                            : copied   ? s.depth
                                       : g.a.stride,
                .a_transposed = transposed,
                .b = at.b,
                .b_stride = kPanel,
                .b_panel = panel_floats(s.depth),
                .c = g.c.row(at.i) + s.j,
                .c_stride = g.c.stride,
                .m = at.rows,
                .n = s.columns / kPanel * kPanel,
                .k = s.depth,
                .accumulate = g.accumulate || s.k > 0};
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
  if (context.precision() == Precision::kBf16) return multiply_bf16(context, g, bf16_path());
  multiply(context, g, FloatKernel{});
}

}  // namespace

void expand(const Product& g, const StoredPart& part, float* to) {
  if (g.form == Form::kNT) return expand_panel(g.stored, {part.j / kPanel, part.k, part.depth}, to);
  // Outputs are the inner dimension: 16 by 16 they are turned.
  float square[kPanel * kPanel];
  const int64_t columns = std::min(kPanel, g.n - part.j);
  for (int64_t i = 0; i < part.depth;) {
    const int64_t output = part.k + i, lane = output % kPanel, count = std::min(kPanel - lane, part.depth - i);
    expand_panel(g.stored, {output / kPanel, part.j, columns}, square);
    for (int64_t r = 0; r < count; ++r, ++i) {
      for (int64_t c = 0; c < kPanel; ++c) to[i * kPanel + c] = c < columns ? square[c * kPanel + lane + r] : 0.0f;
    }
  }
}

void multiply_bf16(Context& context, const Product& g, Bf16Path path) {
  if (path == Bf16Path::kRounded) return multiply(context, g, FloatKernel{.rounded = true});
  multiply_packed_tiles(context, g, path == Bf16Path::kTiles);
}

void gemm_nt(Context& context, ConstNumberMat a, ConstMat b, Mat c, bool accumulate) {
  assert(a.cols == b.cols);
  multiply(context, {Form::kNT, a, b, c, a.rows, b.rows, a.cols, accumulate});
}
void gemm_nn(Context& context, ConstNumberMat a, ConstMat b, Mat c, bool accumulate) {
  assert(a.cols == b.rows);
  multiply(context, {Form::kNN, a, b, c, a.rows, b.cols, a.cols, accumulate});
}
void gemm_nt(Context& context, ConstNumberMat a, const Panels& b, Mat c) {
  assert(a.cols == b.in);
  multiply(context, {Form::kNT, a, {}, c, a.rows, b.out, a.cols, false, b});
}
void gemm_nn(Context& context, ConstNumberMat a, const Panels& b, Mat c) {
  assert(a.cols == b.out);
  multiply(context, {Form::kNN, a, {}, c, a.rows, b.in, a.cols, false, b});
}
void gemm_tn(Context& context, ConstNumberMat a, ConstNumberMat b, Mat c, bool accumulate) {
  assert(a.rows == b.rows);
  multiply(context, {Form::kTN, a, b, c, a.cols, b.cols, a.rows, accumulate});
}
void gemm_tn(Context& context, ConstNumberMat a, ConstNumberMat b, Mat c, const RowGroups& groups) {
  assert(a.rows == b.rows && c.rows == a.cols && c.cols == b.cols && a.rows == groups.end() - groups.begin);
  const Product g{Form::kTN, a, b, c, a.cols, b.cols, a.rows, true};
  if (g.m == 0 || g.n == 0 || g.k == 0) return;
  const ZoneTimer timer(context, Zone::kGemm);
  if (context.precision() == Precision::kF32) return multiply_by_groups(context, g, groups, FloatKernel{});
  if (bf16_path() == Bf16Path::kRounded) return multiply_by_groups(context, g, groups, FloatKernel{.rounded = true});
  multiply_packed_tiles_by_groups(context, g, groups, bf16_path() == Bf16Path::kTiles);
}

}  // namespace longshot
