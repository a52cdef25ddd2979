#include "kernels/gemm.h"

#include <cblas.h>

#include <cassert>

#include "base/threads.h"
#include "base/zones.h"

namespace longshot {
namespace {

struct Sizes {
  int64_t m, n, k;
};

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, Sizes s, ConstMat a, ConstMat b, Mat c, float beta) {
  assert(c.rows == s.m && c.cols == s.n);
  if (s.m == 0 || s.n == 0) return;
  const ZoneTimer timer(Zone::kGemm);
  threads();  // OpenBLAS follows OpenMP's count, which must have been set
  cblas_sgemm(CblasRowMajor, ta, tb, static_cast<int>(s.m), static_cast<int>(s.n), static_cast<int>(s.k), 1.0f, a.data,
              static_cast<int>(a.stride), b.data, static_cast<int>(b.stride), beta, c.data, static_cast<int>(c.stride));
}

}  // namespace

void gemm_nt(ConstMat a, ConstMat b, Mat c, float beta) {
  assert(a.cols == b.cols);
  gemm(CblasNoTrans, CblasTrans, {a.rows, b.rows, a.cols}, a, b, c, beta);
}
void gemm_nn(ConstMat a, ConstMat b, Mat c, float beta) {
  assert(a.cols == b.rows);
  gemm(CblasNoTrans, CblasNoTrans, {a.rows, b.cols, a.cols}, a, b, c, beta);
}
void gemm_tn(ConstMat a, ConstMat b, Mat c, float beta) {
  assert(a.rows == b.rows);
  gemm(CblasTrans, CblasNoTrans, {a.cols, b.cols, a.rows}, a, b, c, beta);
}

}  // namespace longshot
