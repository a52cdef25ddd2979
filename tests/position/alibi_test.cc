// Slopes as the authors' own code computes them, paper-facts table: -log2(slope) per head.
#include <gmock/gmock.h>

#include <cmath>

#include "context.h"
#include "kernels/attention_call.h"
#include "position/support.h"

namespace longshot {
namespace {

std::vector<double> exponents(int64_t heads) {
  const auto position = make_position("alibi", {.layers = 1, .heads = heads, .head_dim = 8, .train_length = 8});
  std::vector<double> out;
  for (const float slope : position->bias(0).slopes) out.push_back(-std::log2(static_cast<double>(slope)));
  return out;
}

TEST(Alibi, SlopesForEveryHeadCountOfTheTable) {
  using testing::DoubleNear;
  const std::map<int64_t, std::vector<double>> table{
      {1, {8}},
      {2, {4, 8}},
      {3, {4, 8, 2}},
      {4, {2, 4, 6, 8}},
      {5, {2, 4, 6, 8, 1}},
      {6, {2, 4, 6, 8, 1, 3}},
      {7, {2, 4, 6, 8, 1, 3, 5}},
      {8, {1, 2, 3, 4, 5, 6, 7, 8}},
      {10, {1, 2, 3, 4, 5, 6, 7, 8, .5, 1.5}},
      {12, {1, 2, 3, 4, 5, 6, 7, 8, .5, 1.5, 2.5, 3.5}},
      {16, {.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8}}};
  for (const auto& [heads, want] : table) {
    EXPECT_THAT(exponents(heads), testing::Pointwise(DoubleNear(1e-6), want)) << heads << " heads";
  }
}

// The closed form other projects use: h < c: 8 (h + 1) / c; h >= c: (4 / c) (2 (h - c) + 1).
TEST(Alibi, SlopesOfOneToThirtyTwoHeadsFollowTheClosedForm) {
  for (int64_t heads = 1; heads <= 32; ++heads) {
    int64_t c = 1;
    while (2 * c <= heads) c *= 2;
    const std::vector<double> got = exponents(heads);
    ASSERT_EQ(static_cast<int64_t>(got.size()), heads);
    for (int64_t h = 0; h < heads; ++h) {
      const double want = h < c ? 8.0 * (h + 1) / c : 4.0 / c * (2 * (h - c) + 1);
      EXPECT_NEAR(got[static_cast<size_t>(h)], want, 1e-6) << "head " << h << " of " << heads;
    }
  }
}

TEST(Alibi, EightHeadsAreExactPowersOfTwo) {
  const auto position = make_position("alibi", {.layers = 1, .heads = 8, .head_dim = 8, .train_length = 8});
  EXPECT_THAT(position->bias(0).slopes,
              testing::ElementsAre(.5f, .25f, .125f, .0625f, .03125f, .015625f, .0078125f, .00390625f));
}

// With queries of 0 the scores are the bias alone, and with unit vectors as values the output is the probabilities:
// p_ij / p_ii = e^(-m_h (i - j)) for j <= i, nothing behind.
TEST(Alibi, ARowOfTheBiasIsTheLinearPenalty) {
  constexpr int64_t kHeads = 12, kTokens = 8;  // as many tokens as a head has dimensions
  const auto position =
      make_position("alibi", {.layers = 1, .heads = kHeads, .head_dim = kTokens, .train_length = kTokens});
  const std::vector<double> exponent = exponents(kHeads);
  constexpr size_t kSize = kTokens * kHeads * kTokens;  // [T, H, D]
  std::vector<float> q(kSize), k(kSize, 1), v(kSize), out(kSize);
  const auto heads = [](auto* x) { return packed_heads(x, kTokens, kHeads, kTokens); };
  const auto at = [](int64_t token, int64_t head, int64_t i) {
    return static_cast<size_t>((token * kHeads + head) * kTokens + i);
  };
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) v[at(t, h, t)] = 1;
  }
  Attention attention(
      {.queries = kTokens, .keys = kTokens, .heads = kHeads, .head_dim = kTokens, .bias = position->bias(0)});
  attention.forward(test_context(), {heads(q.data()), heads(k.data()), heads(v.data())}, heads(out.data()));
  for (int64_t h = 0; h < kHeads; ++h) {
    const double slope = std::exp2(-exponent[static_cast<size_t>(h)]);
    for (int64_t i = 0; i < kTokens; ++i) {
      for (int64_t j = 0; j < kTokens; ++j) {
        const double want = j <= i ? std::exp(-slope * static_cast<double>(i - j)) : 0;
        EXPECT_NEAR(out[at(i, h, j)] / out[at(i, h, i)], want, 1e-5) << "head " << h << ", " << i << " to " << j;
      }
    }
  }
}

}  // namespace
}  // namespace longshot
