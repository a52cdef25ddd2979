#include "base/rng.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <vector>

namespace longshot {
namespace {

// Outputs 1 to 3 of splitmix64 from state 0, as its authors' C program prints them: state s gives mix64(s) and moves on by the
// golden ratio.
TEST(Rng, Mix64IsSplitmix64) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix64(kGolden), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(mix64(2 * kGolden), 0x06c45d188009454fu);
}

TEST(Rng, EveryArgumentCounts) {
  std::set<uint64_t> seen;
  for (const uint64_t seed : {0, 1})
    for (const Stream stream : {Stream::kInit, Stream::kData, Stream::kDropout})
      for (const uint64_t a : {0, 1, 2})
        for (const uint64_t b : {0, 1, 2}) seen.insert(random_bits(seed, stream, a, b));
  EXPECT_EQ(seen.size(), 2u * 3 * 3 * 3);
}

TEST(Rng, UniformStaysBelowOneAndFillsTheRange) {
  EXPECT_EQ(uniform01(0), 0);
  EXPECT_LT(uniform01(~uint64_t{0}), 1);
  EXPECT_EQ(uniform01(~uint64_t{0}), 1 - 0x1p-53);
  constexpr int kCount = 100'000, kBins = 20;
  std::vector<int> bins(kBins);
  for (uint64_t i = 0; i < kCount; ++i)
    ++bins[static_cast<size_t>(uniform01(random_bits(7, Stream::kTest, 3, i)) * kBins)];
  constexpr double kExpected = kCount / double{kBins};
  double chi2 = 0;
  for (const int n : bins) chi2 += std::pow(n - kExpected, 2) / kExpected;
  EXPECT_LT(chi2, 43.8);  // 19 degrees of freedom: one in a thousand is above
}

TEST(Rng, NormalHasItsMoments) {
  constexpr int kCount = 200'000;
  double sum[5] = {};
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = normal(5, Stream::kTest, 1, i);
    ASSERT_TRUE(std::isfinite(x));
    for (int k = 1; k <= 4; ++k) sum[k] += std::pow(x, k) / kCount;
  }
  // Four standard errors of each moment: sqrt(Var(x^k) / n) with Var 1, 2, 15, 96.
  const double n = std::sqrt(double{kCount});
  EXPECT_NEAR(sum[1], 0, 4 * 1 / n);
  EXPECT_NEAR(sum[2], 1, 4 * std::sqrt(2) / n);
  EXPECT_NEAR(sum[3], 0, 4 * std::sqrt(15) / n);
  EXPECT_NEAR(sum[4], 3, 4 * std::sqrt(96) / n);
}

TEST(Rng, PermuteVisitsEveryIndexOnce) {
  for (const uint64_t n : {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097}) {
    for (const uint64_t key : {0, 1, 99}) {
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t to = permute(i, n, key);
        ASSERT_LT(to, n);
        EXPECT_FALSE(seen[to]) << i << " of " << n << " goes where another went";
        seen[to] = true;
      }
    }
  }
}

TEST(Rng, KeysPermuteDifferently) {
  int equal = 0;
  for (uint64_t i = 0; i < 1000; ++i) equal += permute(i, 1000, 1) == permute(i, 1000, 2);
  EXPECT_LT(equal, 10);  // two random permutations agree in one place on average
}

// What a seed gives is a contract: runs of old must resume, and their figures be made again.
TEST(Rng, ValuesStayWhatTheyAre) {
  EXPECT_EQ(random_bits(1, Stream::kInit, 2, 3), 0x6b360221edd5a20au);
  EXPECT_EQ(permute(5, 1000, 42), 466u);
  EXPECT_DOUBLE_EQ(normal(1, Stream::kInit, 0, 0), 1.6903034086822541);
}

}  // namespace
}  // namespace longshot
