// Products with parameter matrices: the one place where the model meets how weights are stored.
#pragma once
#include "base/context.h"
#include "base/view.h"
#include "kernels/panels.h"

namespace longshot {

// A parameter matrix W[out, in] as products see it: rows of floats, which can be trained, or stored for running.
struct Weight {
  ConstMat values{};  // [out, in]
  Panels stored{};    // instead, where it has data

  bool is_stored() const { return stored.data != nullptr; }
  int64_t out() const { return is_stored() ? stored.out : values.rows; }
  int64_t in() const { return is_stored() ? stored.in : values.cols; }
  // The rows of outputs [first, first + count). REQUIRES: can_begin_at(first).
  Weight outputs(int64_t first, int64_t count) const;
  bool can_begin_at(int64_t output) const;
};

// y = x W^T:   x[n, in], y[n, out]
void product(Context& context, ConstMat x, const Weight& w, Mat y);
// y = x W, or y += with `accumulate`:   x[n, out], y[n, in]
void product_transposed(Context& context, ConstMat x, const Weight& w, Mat y, bool accumulate = false);
// dW += dy^T x:   dy[n, out], x[n, in], dW[out, in]
void product_gradient(Context& context, ConstMat dy, ConstMat x, Mat dw);

}  // namespace longshot
