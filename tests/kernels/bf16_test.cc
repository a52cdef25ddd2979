// Products of bf16 operands: the rounding, the packed tiles, the tile kernel over a plain loop and over the instructions,
// and whole products against sums of rounded numbers.
#include "kernels/bf16.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "context.h"
#include "kernels/attention_head.h"
#include "kernels/bf16_tiles-inl.h"
#include "kernels/bf16_x86.h"
#include "kernels/gemm.h"
#include "kernels/support.h"
#include "kernels/tile_product.h"

namespace longshot {
namespace {

float widened(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

float rounded(float x) {
  float y = 0;
  round_to_bf16(&x, &y, 1);
  return y;
}

TEST(Bf16, RoundsToTheNearestTiesToEven) {
  const float kEps = 0x1p-8f;  // half of bf16's last place at 1
  const struct {
    float x, y;
  } cases[] = {{1, 1},
               {1 + kEps, 1},
               {1 + kEps + 0x1p-20f, 1 + 2 * kEps},
               {1 + 3 * kEps, 1 + 4 * kEps},
               {-1 - 3 * kEps, -1 - 4 * kEps},
               {0.0f, 0.0f},
               {3.4e38f, HUGE_VALF},
               {-HUGE_VALF, -HUGE_VALF},
               {0x1p-126f, 0x1p-126f},
               {0x1p-127f, 0.0f},
               {std::numeric_limits<float>::denorm_min(), 0.0f}};
  for_each_target([&] {
    for (const auto& c : cases) EXPECT_EQ(rounded(c.x), c.y) << c.x;
    EXPECT_TRUE(std::signbit(rounded(-0x1p-130f)));
    EXPECT_TRUE(std::isnan(rounded(NAN)));
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7f800001u))));  // the sum would carry into infinity
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0xffffffffu))));
  });
}

// Numbers of every kind.
std::vector<float> mixed(int64_t n) {
  const float special[] = {0.0f, -0.0f, HUGE_VALF, NAN, 0x1p-127f, 1e38f, 1 + 0x1p-8f};
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) {
    const auto normal_at = static_cast<float>(normal(5, Stream::kTest, 7, static_cast<uint64_t>(i)));
    x.push_back(i % 23 == 0 ? special[static_cast<size_t>(i / 23 % 7)] : normal_at);
  }
  return x;
}

// What the stop rule of attention allows for, at every number between two powers of two that rounding can lengthen most.
TEST(Bf16, RoundingLengthensNoMoreThanTheBoundOnFarKeysKnows) {
  double most = 0;
  float x = 1;
  while (x < 2) {
    float y = 0;
    round_to_bf16(&x, &y, 1);
    most = std::max(most, static_cast<double>(y) / static_cast<double>(x));
    x = std::nextafter(x, 2.0f);
  }
  EXPECT_LE(most * most, kBf16Longer);
  EXPECT_GE(most * most, kBf16Longer - 0x1p-14) << "the bound is the least that holds";
}

TEST(Bf16, TheInstructionsPackWhatThePlainLoopPacks) {
  if (!has_bf16_pairs()) GTEST_SKIP() << "this CPU has no AVX512_BF16";
  const std::vector<float> x = mixed(40 * 50);
  std::vector<uint16_t> halves;
  for (const float v : x) halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded(v)) >> 16));
  for (const bool along : {true, false}) {
    for (const Operand operand : {Operand::kA, Operand::kB}) {
      for (const int64_t lanes : {1, 2, 15, 16}) {
        for (const int64_t depth : {1, 2, 15, 16, 17, 31, 32}) {
          const TileSource from{x.data() + 3, 50, along, lanes, depth};
          TileSource stored = from;
          stored.x = halves.data() + 3;
          std::vector<uint16_t> plain(kTileNumbers);
          pack_tile(from, operand, plain.data());
          for (const TileSource& source : {from, stored}) {
            std::vector<uint16_t> fast(kTileNumbers, 0xaaaa);
            pack_tile_x86(source, operand, fast.data());
            for (size_t i = 0; i < plain.size(); ++i) {
              if (std::isnan(widened(plain[i]))) {
                ASSERT_TRUE(std::isnan(widened(fast[i])));
              } else {
                ASSERT_EQ(plain[i], fast[i]) << along << " " << lanes << " " << depth << ": " << i;
              }
            }
          }
        }
      }
    }
  }
}

// What TDPBF16PS computes: even and odd products of a tile's row are summed apart, from 0, in order.
class PlainTiles {
 public:
  template <int T>
  void zero() {
    std::memset(tiles_[T], 0, sizeof(tiles_[T]));
  }
  template <int T>
  void load(const void* from, int64_t stride) {
    for (int64_t r = 0; r < 16; ++r) std::memcpy(tiles_[T][r], static_cast<const char*>(from) + r * stride, 64);
  }
  template <int T>
  void store(void* to, int64_t stride) {
    for (int64_t r = 0; r < 16; ++r) std::memcpy(static_cast<char*>(to) + r * stride, tiles_[T][r], 64);
  }
  template <int C, int A, int B>
  void multiply() {
    for (int64_t i = 0; i < 16; ++i) {
      for (int64_t j = 0; j < 16; ++j) {
        float even = 0, odd = 0;
        for (int64_t p = 0; p < 16; ++p) {
          even = std::fma(number(A, i, 2 * p), number(B, p, 2 * j), even);
          odd = std::fma(number(A, i, 2 * p + 1), number(B, p, 2 * j + 1), odd);
        }
        float c = 0;
        std::memcpy(&c, tiles_[C][i] + 4 * j, 4);
        c += even + odd;
        std::memcpy(tiles_[C][i] + 4 * j, &c, 4);
      }
    }
  }

 private:
  float number(int tile, int64_t row, int64_t at) const {
    uint16_t x = 0;
    std::memcpy(&x, tiles_[tile][row] + 2 * at, 2);
    return widened(x);
  }
  char tiles_[8][16][64];
};

// Strips and panels of random numbers and a block of C.
struct BlockCase {
  static constexpr int64_t kSteps = 3, kStride = 40;
  std::vector<uint16_t> a, b;
  std::vector<float> before;
  explicit BlockCase(uint64_t seed) : before(32 * kStride) {
    const auto fill = [&](std::vector<uint16_t>& x, uint64_t stream) {
      for (int64_t i = 0; i < 2 * kSteps * kTileNumbers; ++i) {
        const auto f = static_cast<float>(normal(seed, Stream::kTest, stream, static_cast<uint64_t>(i)));
        x.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(f) >> 16));
      }
    };
    fill(a, 1), fill(b, 2);
    for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(normal(seed, Stream::kTest, 3, i));
  }
  TileBlock block(std::vector<float>& c, bool accumulate) const {
    c = before;
    return {a.data(), kSteps * kTileNumbers, b.data(), kSteps * kTileNumbers, kSteps, c.data(), kStride, accumulate};
  }
  double expected(int64_t i, int64_t j, bool accumulate) const {
    double sum = accumulate ? before[static_cast<size_t>(i * kStride + j)] : 0;
    for (int64_t k = 0; k < kSteps * kTileDepth; ++k) {
      const int64_t tile = k / kTileDepth, at = k % kTileDepth;
      const int64_t from_a = (i / 16 * kSteps + tile) * kTileNumbers + i % 16 * kTileDepth + at;
      const int64_t from_b = (j / 16 * kSteps + tile) * kTileNumbers + at / 2 * 32 + 2 * (j % 16) + at % 2;
      sum += static_cast<double>(widened(a[static_cast<size_t>(from_a)])) * widened(b[static_cast<size_t>(from_b)]);
    }
    return sum;
  }
};

template <int M, int N>
void run_plain(const TileBlock& p) {
  PlainTiles tiles;
  tile_block<M, N>(tiles, p);
}

TEST(Bf16, TheTileKernelSumsTheRightNumbers) {
  const BlockCase c(1);
  using Runner = void (*)(const TileBlock&);
  const Runner runs[2][2] = {{run_plain<1, 1>, run_plain<1, 2>}, {run_plain<2, 1>, run_plain<2, 2>}};
  for (const bool accumulate : {false, true}) {
    for (const int64_t strips : {1, 2}) {
      for (const int64_t panels : {1, 2}) {
        std::vector<float> plain;
        runs[strips - 1][panels - 1](c.block(plain, accumulate));
        for (int64_t i = 0; i < 32; ++i) {
          for (int64_t j = 0; j < BlockCase::kStride; ++j) {
            const float got = plain[static_cast<size_t>(i * BlockCase::kStride + j)];
            if (i < 16 * strips && j < 16 * panels) {
              ASSERT_NEAR(got, c.expected(i, j, accumulate), 1e-4) << i << " " << j;
            } else {
              ASSERT_EQ(got, c.before[static_cast<size_t>(i * BlockCase::kStride + j)]) << i << " " << j;
            }
          }
        }
        if (!has_bf16_tiles()) continue;
        std::vector<float> fast;
        const TileBlock p = c.block(fast, accumulate);
        AmxSession().block(p, strips, panels);
        ASSERT_EQ(std::memcmp(fast.data(), plain.data(), sizeof(float) * plain.size()), 0) << strips << " x " << panels;
      }
    }
  }
}

TEST(Bf16, PairsSumTheRightNumbers) {
  if (!has_bf16_pairs()) GTEST_SKIP() << "this CPU has no AVX512_BF16";
  const BlockCase c(2);
  for (const bool accumulate : {false, true}) {
    std::vector<float> sums;
    pairs_block(c.block(sums, accumulate));
    for (int64_t i = 0; i < 16; ++i) {
      for (int64_t j = 0; j < 16; ++j)
        ASSERT_NEAR(sums[static_cast<size_t>(i * BlockCase::kStride + j)], c.expected(i, j, accumulate), 1e-4);
    }
  }
}

// Tiles of attention: products of operands rounded first, every form and every part that a causal tile leaves out.
TEST(Bf16, TileProductsAreThoseOfRoundedOperands) {
  struct Sizes {
    int64_t m, n, k;
  };
  for (const Bf16Path path : {Bf16Path::kTiles, Bf16Path::kPairs, Bf16Path::kRounded}) {
    if (!has_bf16_path(path)) continue;
    for (const Sizes& z : {Sizes{1, 16, 1}, {17, 48, 20}, {96, 128, 64}, {96, 64, 128}, {95, 80, 33}, {128, 64, 96}}) {
      for (const Causal causal : {Causal::kFull, Causal::kScores, Causal::kRows, Causal::kColumns}) {
        for (const bool transposed : {false, true}) {
          Guarded a(transposed ? z.k : z.m, transposed ? z.m : z.k, 1, 1), b(z.k, z.n, 3, 2), c(z.m, z.n, 1, 3),
              want = c;
          const TileProduct p{a.mat().data,
                              a.mat().stride,
                              transposed,
                              b.mat().data,
                              b.mat().stride,
                              kPanel,
                              c.mat().data,
                              c.mat().stride,
                              z.m,
                              z.n,
                              z.k,
                              causal != Causal::kScores,
                              causal,
                              5};
          // What a causal tile leaves out of the inner sum is 0.
          for (int64_t i = 0; i < z.m; ++i) {
            for (int64_t k = 0; k < z.k; ++k) {
              const bool hidden = (causal == Causal::kRows && k > i + 5) || (causal == Causal::kColumns && k < i - 5);
              if (hidden) (transposed ? a.mat()(k, i) : a.mat()(i, k)) = 0;
            }
          }
          std::vector<float> scratch(static_cast<size_t>(tile_product_floats(z.m, z.n, z.k)));
          tile_product_bf16(p, path, scratch.data());
          c.expect_guards_intact();
          for (int64_t i = 0; i < z.m; ++i) {
            for (int64_t j = 0; j < z.n; ++j) {
              if (causal == Causal::kScores && j > i + 5) continue;
              double sum = p.accumulate ? want.mat()(i, j) : 0;
              for (int64_t k = 0; k < z.k; ++k)
                sum += double{rounded(transposed ? a.mat()(k, i) : a.mat()(i, k))} * rounded(b.mat()(k, j));
              ASSERT_NEAR(c.mat()(i, j), sum, 1e-4) << name_of(path) << " " << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace longshot
