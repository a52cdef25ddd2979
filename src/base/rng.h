// Randomness is a function of (seed, stream, counter), not a state: the same on any thread, and resuming needs
// nothing but the step.
#pragma once
#include <cstdint>
#include <string_view>

namespace longshot {

// What a random number is for. Values are part of the reproducibility contract: never renumber.
enum class Stream : uint64_t { kInit = 1, kData = 2, kDropout = 3, kSample = 4, kBootstrap = 5, kTest = 99 };

// splitmix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64-bit words.
inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t random_bits(uint64_t seed, Stream stream, uint64_t a, uint64_t b = 0) {
  return mix64(mix64(mix64(mix64(seed) ^ static_cast<uint64_t>(stream)) ^ a) ^ b);
}

// FNV-1a: a name as the first number of a stream.
constexpr uint64_t name_key(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// Uniform in [0, 1), 53 bits.
inline double uniform01(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// Standard normal number `b` of sequence `a` (Box-Muller).
double normal(uint64_t seed, Stream stream, uint64_t a, uint64_t b);

// Where `index` goes under a keyed permutation of [0, n): four Feistel rounds, cycle-walked into range.
// Any single value costs O(1) time and no memory. REQUIRES: index < n.
uint64_t permute(uint64_t index, uint64_t n, uint64_t key);

}  // namespace longshot
