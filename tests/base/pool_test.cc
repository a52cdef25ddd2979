#include "base/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace longshot {
namespace {

TEST(Pool, EveryPieceOnceWhateverTheThreads) {
  for (const int threads : {1, 2, 3, 16}) {
    Pool pool(threads);
    for (const int64_t pieces : {0, 1, 2, 3, 17, 1000}) {
      for (const int used : {1, threads}) {
        std::vector<std::atomic<int>> seen(1000);
        const auto mark = [&](int64_t i, int thread) {
          EXPECT_LT(thread, used);
          ++seen[static_cast<size_t>(i)];
        };
        pool.run(pieces, used, mark);
        for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i < pieces) << threads << " " << i;
      }
    }
  }
}

// Many short loops: a helper that comes late must find nothing of the loop it missed. What a loop wrote is there when it
// has ended.
TEST(Pool, LoopsFollowEachOther) {
  Pool pool(4);
  std::vector<int64_t> values(64);
  for (int64_t loop = 0; loop < 20000; ++loop) {
    const int64_t pieces = 1 + loop % 64;
    const auto write = [&](int64_t i, int) { values[static_cast<size_t>(i)] = loop + i; };
    pool.run(pieces, 4, write);
    for (int64_t i = 0; i < pieces; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], loop + i);
  }
}

TEST(Pool, HelpersHelp) {
  Pool pool(3);
  std::mutex mutex;
  std::set<std::thread::id> workers;
  const auto work = [&](int64_t, int) {
    {
      const std::lock_guard lock(mutex);
      workers.insert(std::this_thread::get_id());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  for (int i = 0; i < 100 && workers.size() < 3; ++i) pool.run(9, 3, work);
  EXPECT_EQ(workers.size(), 3);
}

TEST(Pool, PoolsOfSeveralThreads) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  callers.reserve(3);
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      Pool pool(2);
      const auto add = [&](int64_t i, int) { sum += i; };
      for (int i = 0; i < 200; ++i) pool.run(10, 2, add);
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(sum, 3 * 200 * 45);
}

bool flushes() {
  const volatile float tiny = std::numeric_limits<float>::min();
  return tiny / 4 == 0;
}

#if defined(__SSE2__)
// On every thread, in loops of one piece too, and nowhere else.
TEST(Pool, DenormalsAreZeroInLoopsOnly) {
  Pool pool(3);
  EXPECT_FALSE(flushes());
  for (const int64_t pieces : {1, 90}) {
    std::vector<char> flushed(90);
    const auto look = [&](int64_t i, int) {
      flushed[static_cast<size_t>(i)] = flushes();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    };
    pool.run(pieces, 3, look);
    for (int64_t i = 0; i < pieces; ++i) EXPECT_TRUE(flushed[static_cast<size_t>(i)]) << i;
    EXPECT_FALSE(flushes());
  }
}
#endif

}  // namespace
}  // namespace longshot
