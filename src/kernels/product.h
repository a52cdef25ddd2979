// Products with parameter matrices: the one place where the model meets how weights are stored.
#pragma once
#include "base/context.h"
#include "base/view.h"

namespace longshot {

// A parameter matrix W[out, in] as products see it. How its numbers are stored is the kernels' own business; further
// types, with their layouts and scales, enter here and in product.cc.
struct Weight {
  enum class Type { kF32 };
  Type type = Type::kF32;
  ConstMat values;  // kF32: [out, in]

  int64_t out() const { return values.rows; }
  int64_t in() const { return values.cols; }
  // The rows of outputs [first, first + count).
  Weight outputs(int64_t first, int64_t count) const { return {type, values.rows_from(first, count)}; }
};

// y = x W^T:   x[n, in], y[n, out]
void product(Context& context, ConstMat x, const Weight& w, Mat y);
// y = x W, or y += with `accumulate`:   x[n, out], y[n, in]
void product_transposed(Context& context, ConstMat x, const Weight& w, Mat y, bool accumulate = false);
// dW += dy^T x:   dy[n, out], x[n, in], dW[out, in]
void product_gradient(Context& context, ConstMat dy, ConstMat x, Mat dw);

}  // namespace longshot
