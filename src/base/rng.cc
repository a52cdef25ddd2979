#include "base/rng.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace longshot {

double normal(uint64_t seed, Stream stream, uint64_t a, uint64_t b) {
  const uint64_t bits = random_bits(seed, stream, a, b);
  const double u = 1.0 - uniform01(bits);  // (0, 1]
  const double v = uniform01(mix64(bits));
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint64_t permute(uint64_t index, uint64_t n, uint64_t key) {
  if (n <= 1) return 0;
  const int half_bits = (std::bit_width(n - 1) + 1) / 2;  // the domain is 2^(2 half_bits) < 4 n
  const uint64_t half_mask = (uint64_t{1} << half_bits) - 1;
  do {
    uint64_t left = index >> half_bits, right = index & half_mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (mix64(mix64(key ^ round) ^ right) & half_mask);
      left = right;
      right = next;
    }
    index = left << half_bits | right;
  } while (index >= n);
  return index;
}

}  // namespace longshot
