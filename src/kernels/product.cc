#include "kernels/product.h"

#include <algorithm>
#include <cassert>

#include "kernels/bf16.h"
#include "kernels/few_rows.h"
#include "kernels/gemm.h"
#include "kernels/int8_product.h"
#include "kernels/tile_product.h"
#include "kernels/update.h"

namespace longshot {

Weight Weight::outputs(int64_t first, int64_t count) const {
  if (is_stored()) return {.stored = stored.outputs(first, count)};
  return {.values = values.rows_from(first, count)};
}

bool Weight::can_begin_at(int64_t output) const { return !is_stored() || output % outputs_together(stored.type) == 0; }

void product(Context& context, ConstNumberMat x, const Weight& w, Mat y) {
  if (!w.is_stored()) return gemm_nt(context, x, w.values, y);
  if (w.stored.type == WeightType::kInt8) return int8_product(context, x.floats(), w.stored, y);
  if (x.rows > few_rows()) return gemm_nt(context, x, w.stored, y);
  if (context.precision() == Precision::kF32) return few_rows_product(context, x.floats(), w.stored, y);
  if (w.stored.type == WeightType::kBf16) return few_rows_bf16(context, x.floats(), w.stored, y);
  gemm_nt(context, x, w.stored, y);
}

void product_transposed(Context& context, ConstNumberMat x, const Weight& w, Mat y, bool accumulate) {
  if (!w.is_stored()) return gemm_nn(context, x, w.values, y, accumulate);
  assert(!accumulate);
  gemm_nn(context, x, w.stored, y);
}

void product_gradient(Context& context, ConstNumberMat dy, ConstNumberMat x, Mat dw, const RowGroups& groups) {
  if (groups.plain()) return gemm_tn(context, dy, x, dw, true);
  gemm_tn(context, dy, x, dw, groups);
}

namespace {

constexpr int64_t kRowGrain = 16;

void clear_rows(Context& context, Mat x) {
  context.ranges(x.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    std::fill(x.row(begin), x.row(begin) + (end - begin) * x.cols, 0.0f);
  });
}
void add_rows(Context& context, ConstMat from, Mat to) {
  context.ranges(to.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    add_floats(from.row(begin), to.row(begin), (end - begin) * to.cols);
  });
}

}  // namespace

void GradientPieces::add(Context& context, const GroupPiece& piece, ConstMat dy, ConstMat x) {
  if (!piece.goes_on) ++top_;
  const Mat to = sum(top_ - 1);
  if (top_ > 1 && !piece.goes_on) clear_rows(context, to);
  product_gradient(context, dy, x, to, piece.groups);
  for (int m = 0; m < piece.merges && top_ > 1; ++m, --top_) add_rows(context, sum(top_ - 1), sum(top_ - 2));
}

}  // namespace longshot
