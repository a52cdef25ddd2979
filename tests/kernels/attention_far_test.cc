// Far keys: the mass left out never exceeds epsilon, whatever the values.
#include <gtest/gtest.h>

#include "kernels/attention_fixture.h"
#include "kernels/attention_head.h"

namespace longshot {
namespace {

struct FarCase {
  const char* name;
  float scale;       // of queries and keys
  int64_t huge_key;  // position of a key a hundred times larger; -1: none
  bool sink;         // key 0 aligned with every query
};

void expect_bounded(const FarCase& far, float epsilon, Precision precision = Precision::kF32) {
  const int64_t length = 1500;
  Context context(2);
  context.set_precision(precision);
  const Case c{.shape = {.sequences = 1, .queries = length, .heads = 6, .head_dim = 16},
               .bias = Kind::kLinear,
               .scale = far.scale};
  Fixture full(c);
  for (int64_t h = 0; h < 6; ++h) {
    for (int64_t d = 0; d < 16; ++d) {
      if (far.huge_key >= 0)
        full.qkv[static_cast<size_t>(far.huge_key * 3 * full.width + full.width + h * 16 + d)] *= 100;
      if (far.sink) {
        full.qkv[static_cast<size_t>(full.width + h * 16 + d)] = 20;
        for (int64_t i = 0; i < length; ++i) full.qkv[static_cast<size_t>(i * 3 * full.width + h * 16 + d)] = 1;
      }
    }
  }
  Fixture cut(c);
  cut.qkv = full.qkv;
  cut.options.epsilon = epsilon;
  full.forward(context);
  cut.forward(context);
  const TileCount tiles = count_tiles(cut.visited);
  if (far.huge_key < 0) {
    EXPECT_LT(tiles.seen, tiles.all) << "nothing was left out: the test shows nothing";
  }
  // lse grows by at most -ln(1 - P) when the rest is added, P the share left out; fp32 adds its rounding.
  for (size_t i = 0; i < full.lse.size(); ++i) {
    const double left_out = 1 - std::exp(static_cast<double>(cut.lse[i]) - full.lse[i]);
    ASSERT_LE(left_out, epsilon + 4e-7 * (1 + std::abs(full.lse[i]))) << "row " << i;
  }
  if (epsilon > 1e-6f || precision == Precision::kBf16) return;
  const auto d_out = random_floats(full.n * full.width, 5);
  full.backward(context, d_out);
  cut.backward(context, d_out);
  expect_close(cut.out, full.out, 1e-6, "out");
  expect_close(cut.d_qkv, full.d_qkv, 1e-5, "d_qkv");
}

TEST(FarKeys, WhatIsLeftOutStaysBelowEpsilon) {
  for (const FarCase& far : {FarCase{"plain", 0.3f, -1, false},
                             {"large", 3, -1, false},
                             {"huge far key", 0.3f, 200, false},
                             {"sink", 0.5f, -1, true},
                             {"tiny", 1e-4f, -1, false}}) {
    for (const float epsilon : {0x1p-24f, 1e-3f}) {
      SCOPED_TRACE(testing::Message() << far.name << " epsilon " << epsilon);
      expect_bounded(far, epsilon);
      expect_bounded(far, epsilon, Precision::kBf16);
    }
  }
}

TEST(FarKeys, OtherBiasesNeverSkip) {
  Context context(1);
  const auto expect_all = [&](Fixture& f) {
    f.forward(context);
    const TileCount tiles = count_tiles(f.visited);
    EXPECT_EQ(tiles.seen, tiles.all);
    EXPECT_GT(tiles.all, 0);
  };
  for (const Kind kind : {Kind::kNone, Kind::kTable}) {
    Fixture f({.shape = {.sequences = 1, .queries = 600, .heads = 2, .head_dim = 16}, .bias = kind, .epsilon = 0.5f});
    expect_all(f);
  }
  // A slope of zero or below has no tail to bound.
  Fixture f(
      {.shape = {.sequences = 1, .queries = 600, .heads = 2, .head_dim = 16}, .bias = Kind::kLinear, .epsilon = 0.5f});
  f.slopes = {0, -0.5f};
  f.options.bias.slopes = f.slopes;
  expect_all(f);
}

// A term that may add anything, or at most 0.
class Gift : public ScoreTerm {
 public:
  Gift(float most) : most_(most) {}
  void add(const Tile& t, float* s) const override {
    for (int64_t r = 0; r < t.rows; ++r) {
      for (int64_t c = 0; c < t.cols; ++c) s[r * t.stride + c] += t.key + c == 20 ? most_ : 0.0f;
    }
  }
  void add_gradient(const Tile&, const float*) override {}
  float most() const override { return most_; }

 private:
  float most_;
};

TEST(FarKeys, WhatATermCanAddCounts) {
  Context context(2);
  const Case c{
      .shape = {.sequences = 1, .queries = 900, .heads = 1, .head_dim = 16}, .bias = Kind::kLinear, .scale = 0.3f};
  for (const float most : {0.0f, 40.0f, 400.0f}) {
    Fixture full(c), cut(c);
    Gift gift(most);
    full.options.term = cut.options.term = &gift;
    cut.options.epsilon = 0x1p-24f;
    full.forward(context);
    cut.forward(context);
    expect_close(cut.out, full.out, 1e-6, "out");
    if (most < 100) {
      const TileCount tiles = count_tiles(cut.visited);
      EXPECT_LT(tiles.seen, tiles.all);
    }
  }
}

TEST(FarKeys, TheTailOfFlatSlopesIsExact) {
  EXPECT_NEAR(log_tail(0.5), -std::log(1 - std::exp(-0.5)), 1e-12);
  for (const double slope : {1e-4, 1e-7, 3e-8, 1e-12}) EXPECT_NEAR(log_tail(slope), -std::log(slope), slope);
}

}  // namespace
}  // namespace longshot
