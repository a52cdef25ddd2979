// Matrix products. OpenBLAS enters here.
#pragma once
#include "base/view.h"

namespace longshot {

// c = a b^T + beta c:  a[m, k], b[n, k], c[m, n]. A linear layer forward: y = x W^T.
void gemm_nt(ConstMat a, ConstMat b, Mat c, float beta = 0);
// c = a b + beta c:    a[m, k], b[k, n], c[m, n]. Its input's gradient: dx = dy W.
void gemm_nn(ConstMat a, ConstMat b, Mat c, float beta = 0);
// c = a^T b + beta c:  a[k, m], b[k, n], c[m, n]. Its weight's gradient: dW += dy^T x.
void gemm_tn(ConstMat a, ConstMat b, Mat c, float beta = 0);

}  // namespace longshot
