// A library that multiplies matrices, loaded at run time: a peer for our products.
#pragma once
#include <memory>
#include <string>

namespace longshot {

// c[m, n] = op(a) op(b) + beta c, all row-major and packed; op transposes where asked to.
struct Sgemm {
  int64_t m, n, k;
  bool transpose_a, transpose_b;  // a is stored as [k, m], b as [n, k]
  const float *a, *b;
  float* c;
  float beta;
};

class Blas {
 public:
  // A file with cblas_sgemm (OpenBLAS, MKL) or dnnl_sgemm (oneDNN). Throws Error where there is none.
  Blas(const std::string& file, int threads);
  const std::string& name() const { return name_; }
  void run(const Sgemm& s) const;

 private:
  using Cblas = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a,
                         int lda, const float* b, int ldb, float beta, float* c, int ldc);
  using Dnnl = int (*)(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                       int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
  std::string name_;
  std::shared_ptr<void> library_;
  Cblas cblas_ = nullptr;
  Dnnl dnnl_ = nullptr;
};

// Returns once no other thread of this process runs, or after a while: OpenMP's threads spin behind their work and would
// take a core from whoever is measured next.
void wait_for_other_threads();

}  // namespace longshot
