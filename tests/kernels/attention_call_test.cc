// Attention on one's own memory, against the plain formula: random problems of awkward sizes.
#include "kernels/attention_call.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/attention_reference.h"

namespace longshot {
namespace {

using Kind = DistanceBias::Kind;

// A tensor with its own order of axes and gaps between them; whatever is not part of it must stay as it was.
class Strided {
 public:
  Strided(int64_t sequences, int64_t tokens, int64_t heads, int64_t dim, int layout)
      : sequences_(sequences), tokens_(tokens), heads_(heads), dim_(dim) {
    const int64_t vector = dim + (layout == 1 ? 3 : 0);
    if (layout == 2) {  // [B, H, T, D]
      at_ = {nullptr, heads * tokens * vector, vector, tokens * vector};
    } else {  // [B, T, H, D]
      at_ = {nullptr, tokens * heads * vector + layout, heads * vector, vector};
    }
    data_.assign(static_cast<size_t>(sequences * at_.sequence + 8), kUntouched);
    at_.data = data_.data();
  }
  Strided(const Strided&) = delete;
  void set(const std::vector<float>& dense) {
    each([&](int64_t i, float* x) { *x = dense[static_cast<size_t>(i)]; });
  }
  std::vector<float> dense() {
    std::vector<float> out(static_cast<size_t>(sequences_ * tokens_ * heads_ * dim_));
    each([&](int64_t i, const float* x) { out[static_cast<size_t>(i)] = *x; });
    return out;
  }
  const Heads& heads() const { return at_; }
  void expect_gaps_untouched() {
    std::vector<bool> part(data_.size());
    each([&](int64_t, float* x) { part[static_cast<size_t>(x - data_.data())] = true; });
    for (size_t i = 0; i < data_.size(); ++i) ASSERT_TRUE(part[i] || data_[i] == kUntouched) << "at " << i;
  }

 private:
  template <class F>
  void each(F&& f) {
    int64_t i = 0;
    for (int64_t b = 0; b < sequences_; ++b) {
      for (int64_t t = 0; t < tokens_; ++t) {
        for (int64_t h = 0; h < heads_; ++h) {
          for (int64_t c = 0; c < dim_; ++c) f(i++, at_.at(b, t, h) + c);
        }
      }
    }
  }
  static constexpr float kUntouched = 123456;
  int64_t sequences_, tokens_, heads_, dim_;
  std::vector<float> data_;
  Heads at_;
};

// Draws for one random problem.
class Draw {
 public:
  explicit Draw(uint64_t problem) : problem_(problem) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(random_bits(21, Stream::kTest, problem_, count_++) % static_cast<uint64_t>(n));
  }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<int64_t>(list.size()))];
  }

 private:
  uint64_t problem_, count_ = 0;
};

struct Problem {
  PlainAttention plain;
  std::vector<float> slopes, table;
  std::optional<int64_t> first_position;
  float epsilon = 0;

  AttentionProblem call() const {
    return {.sequences = plain.sequences,
            .queries = plain.queries,
            .keys = plain.keys,
            .heads = plain.heads,
            .key_heads = plain.key_heads,
            .head_dim = plain.dim,
            .scale = static_cast<float>(plain.scale),
            .first_position = first_position,
            .causal = plain.causal,
            .window = plain.window,
            .first_key = plain.first,
            .last_key = plain.last,
            .bias = plain.bias,
            .epsilon = epsilon};
  }
};

void set_bias(Problem& p, Kind kind, int64_t columns, int64_t ahead) {
  PlainAttention& a = p.plain;
  a.bias.kind = kind;
  for (int64_t h = 0; h < a.heads; ++h) p.slopes.push_back(std::exp2(-1.0f - static_cast<float>(h)));
  p.table = random_floats(a.heads * (columns + 1), 2);
  if (kind == Kind::kLinear) a.bias.slopes = p.slopes;
  if (kind == Kind::kTable) a.bias.table = {p.table.data(), a.heads, columns, columns + 1}, a.bias.ahead = ahead;
}

// Filled in place: its bias points into it.
void random_problem(uint64_t seed, Problem& p) {
  Draw draw(seed);
  PlainAttention& a = p.plain;
  const auto size = [&] {
    return draw.one_of<int64_t>({1, 2, 15, 16, 17, 33, 95, 96, 97, 127, 128, 129, 130 + draw.below(200)});
  };
  a.sequences = 1 + draw.below(2);
  a.queries = size(), a.keys = draw.below(3) == 0 ? a.queries : size();
  a.key_heads = 1 + draw.below(2);
  a.heads = a.key_heads * (1 + draw.below(3));
  a.dim = draw.one_of<int64_t>({1, 3, 8, 16, 20, 33, 64});
  a.causal = draw.below(3) > 0;
  if (draw.below(4) == 0) a.window = 1 + draw.below(150);
  if (draw.below(3) == 0) p.first_position = draw.below(200);
  a.position.assign(static_cast<size_t>(a.sequences), p.first_position.value_or(a.keys - a.queries));
  a.scale = draw.below(2) ? 0.3 : 0.0;
  set_bias(p, draw.one_of({Kind::kNone, Kind::kLinear, Kind::kTable}), 1 + draw.below(150), 0);
  if (a.bias.kind == Kind::kTable && draw.below(2)) a.bias.ahead = draw.below(a.bias.table.cols);
  if (draw.below(3) == 0) {
    for (int64_t r = 0; r < a.sequences * a.queries; ++r) {
      const auto from = static_cast<int32_t>(draw.below(a.keys + 5));
      a.first.push_back(from);
      if (a.causal) continue;
      a.last.push_back(from + static_cast<int32_t>(draw.below(60)));  // often empty
    }
  }
  a.fill_random();
}

void check(Problem& p, int layout) {
  PlainAttention& a = p.plain;
  Context context(2);
  const auto of_queries = [&] { return Strided(a.sequences, a.queries, a.heads, a.dim, layout); };
  const auto of_keys = [&] { return Strided(a.sequences, a.keys, a.key_heads, a.dim, (layout + 1) % 3); };
  Strided q = of_queries(), out = of_queries(), d_out = of_queries(), d_q = of_queries();
  Strided k = of_keys(), v = of_keys(), d_k = of_keys(), d_v = of_keys();
  q.set(a.q), k.set(a.k), v.set(a.v), d_out.set(a.d_out);
  Attention attention(p.call());
  const AttentionInputs inputs{q.heads(), k.heads(), v.heads()};
  attention.forward(context, inputs, out.heads());
  std::vector<float> d_slopes, d_table;
  AttentionInputGradients gradients{.d_q = d_q.heads(), .d_k = d_k.heads(), .d_v = d_v.heads()};
  if (a.bias.kind == Kind::kLinear) {
    d_slopes.assign(static_cast<size_t>(a.heads), NAN), gradients.d_slopes = d_slopes;
    a.bias_columns = 1000;
  }
  if (a.bias.kind == Kind::kTable) {
    d_table.assign(static_cast<size_t>(a.heads * a.bias.table.cols), NAN);
    gradients.d_table = {d_table.data(), a.heads, a.bias.table.cols};
  }
  attention.backward(context, inputs, out.heads(), d_out.heads(), gradients);
  a.run();
  double looser = 1;  // a score of size x, far from all keys, is rounded by x 2^-23
  for (const double lse : a.lse) looser = std::isfinite(lse) ? std::max(looser, std::abs(lse) / 16) : looser;
  expect_close(out.dense(), a.out, 2e-6 * looser, "out");
  expect_close(attention.lse(), a.lse, 2e-6 * looser, "lse");
  expect_close(d_q.dense(), a.d_q, 1e-5 * looser, "d_q");
  expect_close(d_k.dense(), a.d_k, 1e-5 * looser, "d_k", std::max(1.0, a.terms / 10));
  expect_close(d_v.dense(), a.d_v, 1e-5 * looser, "d_v");
  if (a.bias.kind == Kind::kTable) expect_close(d_table, a.d_bias, 1e-5 * looser, "d_table");
  if (a.bias.kind == Kind::kLinear) {
    std::vector<double> want;
    for (int64_t h = 0; h < a.heads; ++h) {
      want.push_back(0);
      for (int64_t d = 0; d < 1000; ++d)
        want.back() -= static_cast<double>(d) * a.d_bias[static_cast<size_t>(h * 1000 + 999 - d)];
    }
    expect_close(d_slopes, want, 3e-5 * looser, "d_slopes", std::max(1.0, a.slope_terms / 1000));
  }
  for (Strided* s : {&q, &out, &d_out, &d_q, &k, &v, &d_k, &d_v}) s->expect_gaps_untouched();
}

TEST(AttentionCall, EqualsThePlainFormulaOnRandomProblems) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Problem p;
    random_problem(seed, p);
    const PlainAttention& a = p.plain;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": B " << a.sequences << " T " << a.queries << " S " << a.keys
                                    << " H " << a.heads << "/" << a.key_heads << " D " << a.dim << " causal "
                                    << a.causal << " window " << a.window << " from " << a.position[0] << " bias "
                                    << static_cast<int>(a.bias.kind) << " ahead " << a.bias.ahead << " ranges "
                                    << a.first.size() << " " << a.last.size());
    check(p, static_cast<int>(seed % 3));
    if (testing::Test::HasFailure()) break;
  }
}

TEST(AttentionCall, AnyHeadDimension) {
  for (const int64_t dim : {1, 2, 7, 31, 100, 128, 256, 511, 512, 513, 600}) {
    SCOPED_TRACE(dim);
    Problem p;
    p.plain.queries = 40, p.plain.keys = 150, p.plain.dim = dim, p.plain.heads = 2, p.plain.key_heads = 1;
    p.plain.position = {110};
    set_bias(p, Kind::kLinear, 1, 0);
    p.plain.fill_random();
    check(p, 0);
  }
}

TEST(AttentionCall, BothSidesOfTheQueryDecay) {  // an encoder's ALiBi, far keys left out on both sides
  Problem p;
  PlainAttention& a = p.plain;
  a.queries = a.keys = 900, a.heads = a.key_heads = 2, a.dim = 16, a.causal = false, a.position = {0};
  set_bias(p, Kind::kLinear, 1, 0);
  a.fill_random(0.5f);
  check(p, 0);
  p.epsilon = 0x1p-24f;
  check(p, 0);
  Attention attention(p.call());
  Context context(1);
  const AttentionInputs inputs{packed_heads<const float>(a.q.data(), 900, 2, 16),
                               packed_heads<const float>(a.k.data(), 900, 2, 16),
                               packed_heads<const float>(a.v.data(), 900, 2, 16)};
  std::vector<float> out(a.q.size());
  attention.forward(context, inputs, packed_heads(out.data(), 900, 2, 16));
  EXPECT_LT(attention.tiles().seen, attention.tiles().all) << "nothing was left out: the test shows nothing";
}

TEST(AttentionCall, SlopeGradientEqualsFiniteDifferences) {
  const int64_t T = 50, S = 170, H = 3, D = 8;
  const auto q = random_floats(T * H * D, 1), k = random_floats(S * H * D, 2), v = random_floats(S * H * D, 3),
             d_out = random_floats(T * H * D, 4);
  std::vector<float> slopes = {0.5f, 0.0625f, 0.015625f}, out(q.size()), d_q(q.size()), d_k(k.size()), d_v(v.size()),
                     d_slopes(3);
  const AttentionInputs inputs{packed_heads(q.data(), T, H, D), packed_heads(k.data(), S, H, D),
                               packed_heads(v.data(), S, H, D)};
  Context context(2);
  for (const bool causal : {true, false}) {
    Attention attention({.queries = T,
                         .keys = S,
                         .heads = H,
                         .head_dim = D,
                         .causal = causal,
                         .bias = {.kind = Kind::kLinear, .slopes = slopes}});
    const auto loss = [&] {
      attention.forward(context, inputs, packed_heads(out.data(), T, H, D));
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += static_cast<double>(out[i]) * d_out[i];
      return sum;
    };
    loss();
    attention.backward(context, inputs, packed_heads<const float>(out.data(), T, H, D),
                       packed_heads(d_out.data(), T, H, D),
                       {.d_q = packed_heads(d_q.data(), T, H, D),
                        .d_k = packed_heads(d_k.data(), S, H, D),
                        .d_v = packed_heads(d_v.data(), S, H, D),
                        .d_slopes = d_slopes});
    for (size_t h = 0; h < 3; ++h) {
      const float slope = slopes[h], step = slope / 16;
      slopes[h] = slope + step;
      const double above = loss();
      slopes[h] = slope - step;
      const double below = loss();
      slopes[h] = slope;
      EXPECT_NEAR(d_slopes[h], (above - below) / (2 * static_cast<double>(step)), 0.02 * std::abs(d_slopes[h]) + 1e-2)
          << "head " << h << " causal " << causal;
    }
  }
}

TEST(AttentionCall, QueriesThatSeeNothingAreZeroAndHaveNoGradient) {
  Problem p;
  PlainAttention& a = p.plain;
  a.queries = 130, a.keys = 20, a.dim = 16, a.heads = 2, a.key_heads = 2;
  a.position = {-110};  // the first 110 queries stand before all keys
  set_bias(p, Kind::kLinear, 1, 0);
  a.fill_random();
  check(p, 0);
  for (size_t i = 0; i < 110 * 2 * 16; ++i) ASSERT_EQ(a.out[i], 0) << "the test shows nothing";
}

TEST(AttentionCall, NoKeysAtAll) {
  Problem p;
  p.plain.queries = 3, p.plain.keys = 0, p.plain.dim = 4, p.plain.position = {-3};
  p.plain.fill_random();
  check(p, 0);
}

TEST(AttentionCall, SaysWhatContradicts) {
  const auto refused = [](const AttentionProblem& p, const char* part) {
    try {
      const Attention attention(p);
    } catch (const Error& e) {
      return std::string(e.what()).find(part) != std::string::npos;
    }
    return false;
  };
  const std::vector<float> slopes(3);
  const std::vector<int32_t> ranges(5);
  EXPECT_TRUE(refused({.queries = 4, .keys = 4, .heads = 4, .head_dim = 0}, "dimension 0"));
  EXPECT_TRUE(refused({.queries = 4, .keys = 4, .heads = 4, .key_heads = 3, .head_dim = 8}, "3 heads of keys"));
  EXPECT_TRUE(refused({.queries = 4, .keys = 4, .heads = 4, .head_dim = 8, .first_key = ranges}, "5 queries"));
  EXPECT_TRUE(
      refused({.queries = 4, .keys = 4, .heads = 4, .head_dim = 8, .bias = {.kind = Kind::kLinear, .slopes = slopes}},
              "3 slopes for 4 heads"));
  EXPECT_TRUE(refused({.queries = 4, .keys = 4, .heads = 4, .head_dim = 8, .epsilon = 1}, "epsilon"));
}

}  // namespace
}  // namespace longshot
