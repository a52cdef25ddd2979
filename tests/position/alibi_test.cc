// Slopes as the authors' own code computes them, paper-facts table: -log2(slope) per head.
#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "base/error.h"
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

std::unique_ptr<Position> scaled(int64_t heads, const std::string& scaling, const std::string& factor) {
  PositionSettings settings;
  Options options;
  settings.running_fields(options);
  options.set("alibi-scaling", scaling);
  options.set("alibi-scaling-factor", factor);
  return settings.make("alibi", {.layers = 1, .heads = heads, .head_dim = 8, .train_length = 64});
}

std::vector<float> scaled_slopes(int64_t heads, const std::string& scaling, const std::string& factor) {
  const auto position = scaled(heads, scaling, factor);
  const auto slopes = position->bias(0).slopes;
  return {slopes.begin(), slopes.end()};
}

TEST(AlibiScaling, LinearDividesEverySlope) {
  EXPECT_THAT(scaled_slopes(4, "linear", "4"), testing::ElementsAre(1 / 16.f, 1 / 64.f, 1 / 256.f, 1 / 1024.f));
}

// m_h a^(-(h - 1) / (H - 1)) for a power of two; the steepest and the flattest head of others, wherever they stand.
TEST(AlibiScaling, NtkLeavesTheSteepestAndDividesTheFlattest) {
  const auto slopes = scaled_slopes(8, "ntk", "4");
  for (int h = 0; h < 8; ++h) {
    EXPECT_NEAR(slopes[static_cast<size_t>(h)], std::exp2(-(h + 1) - 2.0 * h / 7), 1e-7) << h;
  }
  const auto six = scaled_slopes(6, "ntk", "16");  // 2, 4, 6, 8, 1, 3
  for (size_t h = 0; h < 6; ++h) {
    const double e = std::array{2, 4, 6, 8, 1, 3}[h];
    EXPECT_NEAR(-std::log2(six[h]), e + 4 * (e - 1) / 7, 1e-5) << h;
  }
  EXPECT_THAT(scaled_slopes(1, "ntk", "4"), testing::ElementsAre(std::exp2(-10.f)));
}

TEST(AlibiScaling, DynamicGoesByTheQuery) {
  for (const double factor : {1.0, 2.5}) {
    const auto position = scaled(8, "dynamic", fmt::format("{}", factor));
    for (const int64_t start : {0, 40, 1000, 100000}) {
      position->prepare(start, start + 500);
      const DistanceBias bias = position->bias(0);
      for (const int64_t i : {start, start + 23, start + 24, start + 499}) {
        const double a = std::max(1.0, factor * static_cast<double>(i + 1) / 64 - (factor - 1));
        for (int64_t h = 0; h < 8; ++h) {
          const double want = std::exp2(-static_cast<double>(h + 1)) * std::pow(a, -static_cast<double>(h) / 7);
          ASSERT_NEAR(bias.query_slopes(i - bias.first, h), want, 1e-6 * want) << "query " << i << " head " << h;
        }
      }
    }
  }
}

TEST(AlibiScaling, AbsurdFactorsAreRefused) {
  const auto refused = [](const std::string& scaling, const std::string& factor) {
    try {
      scaled(8, scaling, factor);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::kUsage);
      return std::string(e.what());
    }
    return std::string();
  };
  for (const char* factor : {"1", "0.5", "0", "-4", "70000", "nan", "inf"}) {
    EXPECT_THAT(refused("ntk", factor), testing::HasSubstr("alibi-scaling-factor")) << factor;
  }
  EXPECT_THAT(refused("none", "4"), testing::HasSubstr("needs --alibi-scaling"));
  EXPECT_EQ(refused("none", "1"), "");
  EXPECT_EQ(refused("dynamic", "1"), "");
  EXPECT_THAT(refused("dynamic", "0.9"), testing::HasSubstr("at least 1"));
}

TEST(AlibiScaling, IsKnownByItsTextAndRefusedByOtherMethods) {
  PositionSettings settings, model;
  EXPECT_EQ(settings.running_text(), "");
  Options options;
  settings.running_fields(options);
  options.set("alibi-scaling", "ntk");
  options.set("alibi-scaling-factor", "4");
  EXPECT_EQ(settings.running_text(), "alibi-scaling ntk, alibi-scaling-factor 4");
  model.run_as(settings, "alibi");
  EXPECT_EQ(model.running_text(), settings.running_text());
  model.run_as({}, "alibi");
  EXPECT_EQ(model.running_text(), "");
  try {
    model.run_as(settings, "rotary");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("--alibi-scaling is for position method 'alibi', but the model's is 'rotary'"));
  }
  Options declared;
  model.fields(declared);
  for (const Option& o : declared.all())
    EXPECT_EQ(o.name.find("scaling"), std::string::npos) << "a checkpoint would hold it";
}

}  // namespace
}  // namespace longshot
