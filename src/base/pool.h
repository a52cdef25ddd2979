// Threads that work through a loop together. A loop ends when its pieces are done, not when every thread has come by:
// on a machine that others use too, a thread that gets no core does not hold up the rest.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace longshot {

// A body of a loop, without its type. It must not throw, and must outlive the call it is given to.
template <class... Args>
class BodyRef {
 public:
  template <class F>
  BodyRef(F& f)
      : body_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* body, Args... args) { (*static_cast<F*>(body))(args...); }) {}
  void operator()(Args... args) const { call_(body_, args...); }

 private:
  void* body_;
  void (*call_)(void*, Args...);
};

// While it lasts, denormal numbers of this thread are read and written as 0: Intel's CPUs compute with them by
// microcode, a hundred times slower, and none of our sums can tell.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned before_;
};

// The calling thread and `threads - 1` helpers, which sleep between loops. One loop at a time.
class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  using Body = BodyRef<int64_t, int>;
  // body(i, thread) once for every i in [0, pieces), handed out one by one to the first `threads` threads; the caller
  // is thread 0. Denormals are flushed inside and nowhere else. REQUIRES: pieces < 2^31.
  void run(int64_t pieces, int threads, const Body& body);

 private:
  struct Helper;
  void help(Helper& self);
  int32_t work(uint32_t loop, int thread);
  void wait_for_helpers(int32_t pieces);
  bool call_the_stalled(int32_t pieces);

  // The loop being worked on. `claim_` is its number and the next piece to hand out: a helper that comes late finds
  // another number, or no piece left, and touches nothing.
  std::atomic<uint64_t> claim_{0};
  std::atomic<const Body*> body_{nullptr};
  std::atomic<int32_t> pieces_{0};
  std::atomic<int> threads_{0};
  std::atomic<int32_t> done_{0};   // pieces finished by helpers
  std::atomic<uint32_t> loop_{0};  // its number again, to sleep on
  std::atomic<bool> ending_{false};
  int missed_ = 0;  // loops in a row that no helper had a part in
  std::vector<std::unique_ptr<Helper>> helpers_;
};

}  // namespace longshot
