#include "kernels/product.h"

#include "kernels/gemm.h"

namespace longshot {

void product(Context& context, ConstMat x, const Weight& w, Mat y) { gemm_nt(context, x, w.values, y); }

void product_transposed(Context& context, ConstMat x, const Weight& w, Mat y, bool accumulate) {
  gemm_nn(context, x, w.values, y, accumulate);
}

void product_gradient(Context& context, ConstMat dy, ConstMat x, Mat dw) { gemm_tn(context, dy, x, dw, true); }

}  // namespace longshot
