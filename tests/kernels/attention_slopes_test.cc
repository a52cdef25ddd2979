// A linear bias whose slopes depend on the query, and attention over two sets of keys.
#include <gtest/gtest.h>

#include "kernels/attention_fixture.h"

namespace longshot {
namespace {

// Slopes that fall with the position, [positions, H], from position `first` on.
std::vector<float> falling_slopes(const std::vector<float>& slopes, int64_t first, int64_t count) {
  std::vector<float> rows;
  for (int64_t p = first; p < first + count; ++p) {
    for (const float m : slopes) rows.push_back(m / (1 + 0.01f * static_cast<float>(p)));
  }
  return rows;
}

TEST(QuerySlopes, EqualThePlainLoop) {
  Context context(2);
  for (const int64_t T : {1, 16, 97, 300}) {
    Fixture f({.shape = {.sequences = 2, .queries = T, .heads = 3, .head_dim = 16}, .bias = Kind::kLinear});
    const std::vector<float> rows = falling_slopes(f.slopes, 0, T);
    f.options.bias.query_slopes = {rows.data(), T, 3};
    f.options.bias.wants_gradient = false;
    const auto d_out = random_floats(f.n * f.width, 5);
    f.forward(context);
    f.backward(context, d_out);
    PlainAttention plain = f.plain(d_out);
    plain.bias_columns = 0;
    plain.run();
    expect_close(f.out, plain.out, 2e-6, "out");
    expect_close(f.lse, plain.lse, 2e-6, "lse");
    expect_close(f.columns(f.d_qkv, 0), plain.d_q, 1e-5, "d_q");
    expect_close(f.columns(f.d_qkv, 1), plain.d_k, 1e-5, "d_k");
  }
}

TEST(QuerySlopes, ThatAreAllAlikeChangeNoBit) {
  Context context(2);
  const Case c{.shape = {.sequences = 1, .queries = 700, .heads = 3, .head_dim = 16},
               .bias = Kind::kLinear,
               .epsilon = 0x1p-24f};
  Fixture plain(c), by_query(c);
  std::vector<float> rows;
  for (int64_t p = 0; p < 700; ++p) rows.insert(rows.end(), plain.slopes.begin(), plain.slopes.end());
  by_query.options.bias.query_slopes = {rows.data(), 700, 3};
  plain.forward(context);
  by_query.forward(context);
  EXPECT_EQ(plain.out, by_query.out);
  EXPECT_EQ(plain.lse, by_query.lse);
}

// The bound goes by each row's own slope: with a neighbour's, which is steeper, too much would be left out.
TEST(QuerySlopes, WhatIsLeftOutStaysBelowEpsilon) {
  Context context(2);
  const Case c{
      .shape = {.sequences = 1, .queries = 2500, .heads = 3, .head_dim = 16}, .bias = Kind::kLinear, .scale = 0.3f};
  Fixture full(c), cut(c);
  std::vector<float> rows;
  for (int64_t p = 0; p < 2500; ++p) {
    for (const float m : full.slopes) rows.push_back(p % 2 == 0 ? m : m / 4);
  }
  for (Fixture* f : {&full, &cut}) f->options.bias.query_slopes = {rows.data(), 2500, 3};
  for (const float epsilon : {0x1p-24f, 1e-3f}) {
    cut.options.epsilon = epsilon;
    full.forward(context);
    cut.forward(context);
    const TileCount tiles = count_tiles(cut.visited);
    EXPECT_LT(tiles.seen, tiles.all) << "nothing was left out: the test shows nothing";
    for (size_t i = 0; i < full.lse.size(); ++i) {
      const double left_out = 1 - std::exp(static_cast<double>(cut.lse[i]) - full.lse[i]);
      ASSERT_LE(left_out, epsilon + 4e-7 * (1 + std::abs(full.lse[i]))) << "row " << i;
    }
  }
}

// Keys [0, cut) and [cut, T) apart, then together.
TEST(MergeAttention, EqualsOnePassOverBoth) {
  Context context(2);
  for (const int64_t cut : {0, 1, 60, 130}) {
    Fixture whole({.shape = {.sequences = 2, .queries = 130, .heads = 2, .head_dim = 24}});
    Fixture far(whole.c), near(whole.c);
    std::vector<int32_t> last(260, static_cast<int32_t>(cut)), first(260, static_cast<int32_t>(cut));
    far.options.visible = {.causal = true, .last = last.data(), .stride = 130};
    near.options.visible = {.causal = true, .first = first.data(), .stride = 130};
    for (Fixture* f : {&whole, &far, &near}) f->forward(context);
    const auto result = [](Fixture& f) -> AttentionResult {
      return {heads_of(Mat(f.out.data(), f.n, f.width), 130, 24), f.lse};
    };
    merge_attention(context, whole.c.shape, result(far), result(near));
    expect_close(near.out, whole.out, 2e-6, "out");
    expect_close(near.lse, whole.lse, 2e-6, "lse");
  }
}

TEST(QuerySlopes, NormsOfQueriesComeWithTheScale) {
  Context context(1);
  Fixture f({.shape = {.sequences = 2, .queries = 100, .heads = 2, .head_dim = 24}, .rotary_pairs = 8});
  std::vector<float> norms(2 * 2 * 100);
  append_keys(context, {f.part(1), f.part(2), 100, f.position}, f.options.rotation, f.store);
  attention_forward(
      context, f.c.shape, f.options,
      {f.part(0), f.position, heads_of(Mat(f.out.data(), f.n, f.width), 100, 24), f.lse, f.visited, norms}, f.store);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t t = 0; t < 100; ++t) {
        double sum = 0;
        const float* q = f.part(0).at(b, t, h);
        for (int64_t c = 0; c < 24; ++c) sum += double{q[c]} * q[c] / 24;
        ASSERT_NEAR(norms[static_cast<size_t>((b * 2 + h) * 100 + t)], std::sqrt(sum), 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace longshot
