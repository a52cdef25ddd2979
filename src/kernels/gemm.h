// Matrix products on all threads, of floats or of numbers rounded to bf16 (kernels/bf16.h), as the context says. Our own: on
// the shapes of language models they reach more of the machine's peak than OpenBLAS does, most of all where a dimension is
// small (docs/performance.md). Operands that are bf16 already are for a context that multiplies in bf16.
#pragma once
#include "base/context.h"
#include "base/groups.h"
#include "base/view.h"
#include "kernels/numbers.h"
#include "kernels/panels.h"

namespace longshot {

// c = a b^T:  a[m, k], b[n, k], c[m, n]. A linear layer forward: y = x W^T.      With `accumulate`: c += ..
void gemm_nt(Context& context, ConstNumberMat a, ConstMat b, Mat c, bool accumulate = false);
// c = a b:    a[m, k], b[k, n], c[m, n]. Its input's gradient: dx = dy W.
void gemm_nn(Context& context, ConstNumberMat a, ConstMat b, Mat c, bool accumulate = false);
// c = a^T b:  a[k, m], b[k, n], c[m, n]. Its weight's gradient: dW += dy^T x.
void gemm_tn(Context& context, ConstNumberMat a, ConstNumberMat b, Mat c, bool accumulate = false);
// c += a^T b by groups of rows (base/groups.h).
void gemm_tn(Context& context, ConstNumberMat a, ConstNumberMat b, Mat c, const RowGroups& groups);

// The same with a stored matrix for B.
void gemm_nt(Context& context, ConstNumberMat a, const Panels& b, Mat c);
void gemm_nn(Context& context, ConstNumberMat a, const Panels& b, Mat c);

}  // namespace longshot
