#include "base/pool.h"

#include <pthread.h>
#include <sched.h>

#include <cassert>
#include <chrono>
#include <ctime>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace longshot {
namespace {

using Clock = std::chrono::steady_clock;

// How long a helper looks for the next loop before it sleeps: longer than the serial work between the loops of a
// training step, shorter than a time slice that others would miss.
constexpr auto kSpin = std::chrono::microseconds(50);
// How long the caller waits for a helper before it asks whether that one runs at all.
constexpr auto kPatience = std::chrono::microseconds(100);
constexpr int kMostMissed = 16;           // loops in a row without a helper's help
constexpr uint32_t kClosed = 0xffffffff;  // no piece is handed out

constexpr uint64_t claim(uint32_t loop, uint32_t piece) { return uint64_t{loop} << 32 | piece; }
constexpr uint32_t loop_of(uint64_t claim) { return static_cast<uint32_t>(claim >> 32); }
constexpr uint32_t piece_of(uint64_t claim) { return static_cast<uint32_t>(claim); }

void pause() {
#if defined(__SSE2__)
  _mm_pause();
#endif
}

// True once `ready` is, false after `time`. The clock is looked at now and then only.
template <class F>
bool spin_until(Clock::duration time, F&& ready) {
  const auto end = Clock::now() + time;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return ready();
}

int64_t cpu_nanoseconds(clockid_t clock) {
  timespec at{};
  return ::clock_gettime(clock, &at) == 0 ? int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec : -1;
}

}  // namespace

#if defined(__SSE2__)
FlushDenormals::FlushDenormals() : before_(_mm_getcsr()) {
  _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON | 0x0040);  // and denormals are zero
}
FlushDenormals::~FlushDenormals() { _mm_setcsr(before_); }
#else
FlushDenormals::FlushDenormals() : before_(0) {}
FlushDenormals::~FlushDenormals() = default;
#endif

struct Pool::Helper {
  int index = 0;
  std::atomic<bool> working{false};
  cpu_set_t cores{};   // where it may run
  bool moved = false;  // to the caller's core, until the loop ends

  // For the caller.
  bool stay_on(const cpu_set_t& set) {
    return ::pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set) == 0;
  }
  void leave_this_core() {
    cpu_set_t others = cores;
    CPU_CLR(static_cast<size_t>(::sched_getcpu()), &others);
    if (CPU_COUNT(&others) > 0 && stay_on(others)) stay_on(cores);
  }
  std::thread thread;
};

Pool::Pool(int threads) {
  cpu_set_t cores{};
  ::pthread_getaffinity_np(::pthread_self(), sizeof(cores), &cores);
  for (int i = 1; i < threads; ++i) {
    helpers_.push_back(std::make_unique<Helper>());
    helpers_.back()->index = i;
    helpers_.back()->cores = cores;
  }
  for (const auto& h : helpers_) h->thread = std::thread([this, &h] { help(*h); });
}

Pool::~Pool() {
  ending_ = true;
  loop_.fetch_add(1);
  loop_.notify_all();
  for (const auto& h : helpers_) h->thread.join();
}

// Pieces of the loop with this number, as long as there are any. Returns how many were done.
int32_t Pool::work(uint32_t loop, int thread) {
  const auto pieces = pieces_.load(std::memory_order_acquire);
  const Body* body = body_.load(std::memory_order_acquire);
  if (thread >= threads_.load(std::memory_order_acquire)) return 0;
  int32_t count = 0;
  uint64_t at = claim_.load(std::memory_order_acquire);
  while (loop_of(at) == loop && piece_of(at) < static_cast<uint32_t>(pieces)) {
    if (!claim_.compare_exchange_weak(at, at + 1, std::memory_order_acq_rel)) continue;
    (*body)(piece_of(at), thread);
    ++count;
    at = claim_.load(std::memory_order_acquire);
  }
  return count;
}

void Pool::help(Helper& self) {
  uint32_t seen = 0;
  while (!ending_.load(std::memory_order_relaxed)) {
    if (!spin_until(kSpin, [&] { return loop_.load(std::memory_order_acquire) != seen; })) loop_.wait(seen);
    seen = loop_.load(std::memory_order_acquire);
    const FlushDenormals flush;
    self.working.store(true, std::memory_order_relaxed);
    const int32_t count = work(seen, self.index);
    self.working.store(false, std::memory_order_relaxed);
    if (count == 0) continue;
    done_.fetch_add(count, std::memory_order_release);
    done_.notify_one();
  }
}

void Pool::run(int64_t pieces, int threads, const Body& body) {
  assert(pieces < kClosed / 2);
  if (pieces <= 1 || threads <= 1 || helpers_.empty()) {
    const FlushDenormals flush;
    for (int64_t i = 0; i < pieces; ++i) body(i, 0);
    return;
  }
  // Nothing is handed out while the loop's description changes.
  const uint32_t loop = loop_of(claim_.load(std::memory_order_relaxed)) + 1;
  claim_.store(claim(loop, kClosed), std::memory_order_relaxed);
  pieces_.store(static_cast<int32_t>(pieces), std::memory_order_release);
  body_.store(&body, std::memory_order_release);
  threads_.store(threads, std::memory_order_release);
  done_.store(0, std::memory_order_relaxed);
  claim_.store(claim(loop, 0), std::memory_order_release);
  loop_.store(loop);
  loop_.notify_all();
  int32_t own = 0;
  {
    const FlushDenormals flush;
    own = work(loop, 0);
  }
  wait_for_helpers(static_cast<int32_t>(pieces) - own);
}

void Pool::wait_for_helpers(int32_t pieces) {
  const auto finished = [&] { return done_.load(std::memory_order_acquire) == pieces; };
  while (!spin_until(kPatience, finished)) {
    const int32_t done = done_.load(std::memory_order_acquire);
    if (call_the_stalled(pieces) && done != pieces) done_.wait(done);
  }
  for (const auto& h : helpers_) {
    if (std::exchange(h->moved, false)) h->leave_this_core();
  }
  // The scheduler may have put the helpers on the caller's own core, where they never get to work.
  missed_ = pieces > 0 ? 0 : missed_ + 1;
  if (missed_ < kMostMissed) return;
  missed_ = 0;
  for (const auto& h : helpers_) h->leave_this_core();
}

// A helper that holds a piece and whose clock stands still has lost its core to somebody else. It is called to the
// caller's core, which has nothing to do but wait. True if one was.
bool Pool::call_the_stalled(int32_t pieces) {
  bool called = false;
  for (const auto& h : helpers_) {
    clockid_t clock{};
    const pthread_t thread = h->thread.native_handle();
    if (h->moved || !h->working.load(std::memory_order_relaxed)) continue;
    if (::pthread_getcpuclockid(thread, &clock) != 0) continue;
    const int64_t before = cpu_nanoseconds(clock);
    if (spin_until(kPatience / 4, [&] { return done_.load(std::memory_order_acquire) == pieces; })) return false;
    if (cpu_nanoseconds(clock) != before) continue;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<size_t>(::sched_getcpu()), &here);
    h->moved = h->stay_on(here);
    called |= h->moved;
  }
  return called;
}

}  // namespace longshot
