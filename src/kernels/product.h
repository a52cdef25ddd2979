// Products with parameter matrices: the one place where the model meets how weights are stored.
#pragma once
#include "base/context.h"
#include "base/groups.h"
#include "base/view.h"
#include "kernels/numbers.h"
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

// x and dy may be bf16 where the context multiplies in it and W is of floats that can be trained.
// y = x W^T:   x[n, in], y[n, out]
void product(Context& context, ConstNumberMat x, const Weight& w, Mat y);
// y = x W, or y += with `accumulate`:   x[n, out], y[n, in]
void product_transposed(Context& context, ConstNumberMat x, const Weight& w, Mat y, bool accumulate = false);
// dW += dy^T x:   dy[n, out], x[n, in], dW[out, in]; by groups of rows where there are several
void product_gradient(Context& context, ConstNumberMat dy, ConstNumberMat x, Mat dw, const RowGroups& groups = {});

// A gradient whose rows come in pieces of a tree: their sums are made in dW, which is 0 before, and in further matrices.
class GradientPieces {
 public:
  // Floats of `room` for a gradient of so many, cut into pieces of at most `rows` rows.
  static int64_t room(const RowGroups& groups, int64_t rows, int64_t floats) {
    return (depth_of_pieces(groups, rows) - 1) * floats;
  }
  GradientPieces(Mat dw, float* room) : dw_(dw), room_(room) {}  // dense rows
  // dW += dy^T x of the next piece.
  void add(Context& context, const GroupPiece& piece, ConstMat dy, ConstMat x);

 private:
  Mat sum(int i) const { return i == 0 ? dw_ : Mat(room_ + (i - 1) * dw_.rows * dw_.cols, dw_.rows, dw_.cols); }
  Mat dw_;
  float* room_;
  int top_ = 0;
};

}  // namespace longshot
