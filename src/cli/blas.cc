#include "cli/blas.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/files.h"

namespace longshot {
namespace {

template <class F>
F symbol(void* library, const char* name) {
  return reinterpret_cast<F>(::dlsym(library, name));
}

// "libopenblas.so.0" -> "openblas"
std::string short_name(const std::string& file) {
  std::string name = fs::path(file).filename().string();
  name = name.substr(0, name.find(".so"));
  return name.starts_with("lib") ? name.substr(3) : name;
}

bool runs(const fs::path& task) {
  std::ifstream file(task / "stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');  // "17 (name) R .."
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'R';
}

bool other_threads_run() {
  std::error_code ignored;  // threads come and go
  const fs::directory_iterator tasks("/proc/self/task", ignored);
  const std::string own = std::to_string(::gettid());
  return std::any_of(begin(tasks), end(tasks),
                     [&](const auto& task) { return task.path().filename() != own && runs(task.path()); });
}

}  // namespace

Blas::Blas(const std::string& file, int threads) : name_(short_name(file)) {
  // Their threads spin for 100 and 200 ms behind a call; between the calls of one measurement less does as well.
  ::setenv("OPENBLAS_THREAD_TIMEOUT", "24", 0);  // 2^24 cycles
  ::setenv("KMP_BLOCKTIME", "10", 0);            // ms
  ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);
  library_ = {::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), [](void*) {}};  // its threads outlive any unloading
  if (!library_) fail("--blas: {}", ::dlerror());
  cblas_ = symbol<Cblas>(library_.get(), "cblas_sgemm");
  dnnl_ = symbol<Dnnl>(library_.get(), "dnnl_sgemm");
  require(cblas_ || dnnl_, "--blas: {} has neither cblas_sgemm nor dnnl_sgemm", file);
  for (const char* setter : {"openblas_set_num_threads", "MKL_Set_Num_Threads", "omp_set_num_threads"}) {
    if (const auto set = symbol<void (*)(int)>(library_.get(), setter)) set(threads);
  }
}

void Blas::run(const Sgemm& s) const {
  const int64_t lda = s.transpose_a ? s.m : s.k, ldb = s.transpose_b ? s.k : s.n;
  if (cblas_) {
    constexpr int kRowMajor = 101, kNo = 111, kTranspose = 112;
    const auto narrow = [](int64_t v) { return static_cast<int>(v); };
    cblas_(kRowMajor, s.transpose_a ? kTranspose : kNo, s.transpose_b ? kTranspose : kNo, narrow(s.m), narrow(s.n),
           narrow(s.k), 1.0f, s.a, narrow(lda), s.b, narrow(ldb), s.beta, s.c, narrow(s.n));
  } else {
    const int status = dnnl_(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0f, s.a, lda, s.b,
                             ldb, s.beta, s.c, s.n);
    require(status == 0, "--blas: dnnl_sgemm returned {}", status);
  }
}

void wait_for_other_threads() {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + 300ms;
  while (other_threads_run() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
}

}  // namespace longshot
