// Tiled attention against the plain formula, forward and backward, at awkward sizes.
#include "kernels/attention.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <functional>
#include <vector>

#include "base/rng.h"
#include "context.h"

namespace longshot {
namespace {

struct Case {
  AttentionShape shape;
  DistanceBias::Kind bias = DistanceBias::Kind::kNone;
  int rotary_pairs = 0;
  bool interleaved = false;
  bool documents = false;
  float epsilon = 0;
  float scale = 1;  // of queries and keys
};

std::vector<float> random_floats(int64_t n, uint64_t stream, float scale = 1) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = scale * static_cast<float>(normal(7, Stream::kTest, stream, i));
  return v;
}

// Owns what an attention call needs.
struct Fixture {
  explicit Fixture(const Case& c, Context& context = test_context())
      : context(context), c(c), n(c.shape.sequences * c.shape.queries), width(c.shape.width()) {
    qkv = random_floats(n * 3 * width, 1);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < 2 * width; ++i) qkv[static_cast<size_t>(r * 3 * width + i)] *= c.scale;
    }
    out.resize(static_cast<size_t>(n * width));
    lse.resize(static_cast<size_t>(c.shape.sequences * c.shape.heads * c.shape.queries));
    visited.resize(static_cast<size_t>(c.shape.sequences * c.shape.heads * c.shape.query_tiles()));
    slopes.resize(static_cast<size_t>(c.shape.heads));
    for (size_t h = 0; h < slopes.size(); ++h) slopes[h] = std::exp2(-1.0f - static_cast<float>(h));
    const int64_t keys = c.shape.keys();
    table = random_floats(c.shape.heads * (keys + kTablePadding), 2);
    cos = random_floats(keys * c.rotary_pairs, 3), sin = cos;
    for (size_t i = 0; i < cos.size(); ++i) sin[i] = std::sin(cos[i]), cos[i] = std::cos(cos[i]);
    options.bias.kind = c.bias;
    options.bias.slopes = slopes;
    options.bias.table = {table.data(), c.shape.heads, keys, keys + kTablePadding};
    options.bias.wants_gradient = c.bias != DistanceBias::Kind::kNone;
    options.rotation = {{cos.data(), keys, c.rotary_pairs}, {sin.data(), keys, c.rotary_pairs}, c.interleaved};
    options.epsilon = c.epsilon;
    if (c.documents) {
      for (int64_t r = 0; r < n; ++r) {
        const int64_t i = r % c.shape.queries;
        first_key.push_back(static_cast<int32_t>(i - i % 37));
      }
      options.first_key = first_key.data();
    }
    memory = Workspace([&](Layout& at) {
      store.layout(at, c.shape.sequences * c.shape.heads, keys, c.shape.head_dim);
      scratch.layout(at, context, c.shape, true, true);
    });
  }

  void forward() {
    attention_forward(context, c.shape, options, {qkv.data(), n, 3 * width}, store, scratch, {out.data(), n, width},
                      lse, {visited});
  }
  void backward(const std::vector<float>& d_out, std::vector<float>& d_qkv, std::vector<float>& d_bias) {
    d_qkv.assign(qkv.size(), NAN);
    d_bias.assign(static_cast<size_t>(c.shape.heads * c.shape.keys()), 0);
    attention_backward(context, c.shape, options, {{qkv.data(), n, 3 * width}, {out.data(), n, width}, lse, {visited}},
                       {d_out.data(), n, width}, scratch, {d_qkv.data(), n, 3 * width},
                       {d_bias.data(), c.shape.heads, c.shape.keys()});
  }

  // The plain formula in double, over probabilities: out, d_qkv, d_bias in one walk.
  void reference(const std::vector<float>& d_out, std::vector<double>& want_out, std::vector<double>& want_dqkv,
                 std::vector<double>& want_dbias) const {
    const int64_t T = c.shape.queries, H = c.shape.heads, D = c.shape.head_dim;
    want_out.assign(out.size(), 0), want_dqkv.assign(qkv.size(), 0);
    want_dbias.assign(static_cast<size_t>(H * T), 0);
    const auto turned = [&](int64_t row, int64_t position, int64_t column, double direction,
                            const std::vector<double>* from) {
      std::vector<double> v(static_cast<size_t>(D));
      for (int64_t d = 0; d < D; ++d) {
        v[static_cast<size_t>(d)] =
            from ? (*from)[static_cast<size_t>(d)] : qkv[static_cast<size_t>(row * 3 * width + column + d)];
      }
      for (int64_t p = 0; p < c.rotary_pairs; ++p) {
        const auto a = static_cast<size_t>(c.interleaved ? 2 * p : p);
        const auto b = static_cast<size_t>(c.interleaved ? 2 * p + 1 : p + c.rotary_pairs);
        const double cs = cos[static_cast<size_t>(position * c.rotary_pairs + p)];
        const double sn = direction * sin[static_cast<size_t>(position * c.rotary_pairs + p)];
        const double x = v[a], y = v[b];
        v[a] = x * cs - y * sn, v[b] = x * sn + y * cs;
      }
      return v;
    };
    for (int64_t b = 0; b < c.shape.sequences; ++b) {
      for (int64_t h = 0; h < H; ++h) {
        std::vector<std::vector<double>> q, k, dq(static_cast<size_t>(T), std::vector<double>(static_cast<size_t>(D))),
            dk = dq;
        for (int64_t t = 0; t < T; ++t) {
          q.push_back(turned(b * T + t, t, h * D, 1, nullptr));
          k.push_back(turned(b * T + t, t, width + h * D, 1, nullptr));
        }
        const auto value = [&](int64_t t, int64_t d) {
          return qkv[static_cast<size_t>((b * T + t) * 3 * width + 2 * width + h * D + d)];
        };
        const double scale = 1 / std::sqrt(static_cast<double>(D));
        for (int64_t i = 0; i < T; ++i) {
          const int64_t lo = c.documents ? first_key[static_cast<size_t>(b * T + i)] : 0;
          std::vector<double> p(static_cast<size_t>(i + 1), 0.0);
          double z = 0, largest = -1e300;
          for (int64_t j = lo; j <= i; ++j) {
            double s = 0;
            for (int64_t d = 0; d < D; ++d)
              s +=
                  q[static_cast<size_t>(i)][static_cast<size_t>(d)] * k[static_cast<size_t>(j)][static_cast<size_t>(d)];
            s *= scale;
            if (c.bias == DistanceBias::Kind::kLinear)
              s -= static_cast<double>(slopes[static_cast<size_t>(h)]) * static_cast<double>(i - j);
            if (c.bias == DistanceBias::Kind::kTable) s += options.bias.table(h, T - 1 - (i - j));
            p[static_cast<size_t>(j)] = s, largest = std::max(largest, s);
          }
          for (int64_t j = lo; j <= i; ++j)
            z += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - largest);
          double delta = 0;
          std::vector<double> dp(static_cast<size_t>(i + 1), 0.0);
          for (int64_t j = lo; j <= i; ++j) {
            p[static_cast<size_t>(j)] /= z;
            for (int64_t d = 0; d < D; ++d) {
              const auto o = static_cast<size_t>((b * T + i) * width + h * D + d);
              want_out[o] += p[static_cast<size_t>(j)] * value(j, d);
              dp[static_cast<size_t>(j)] += static_cast<double>(d_out[o]) * value(j, d);
              want_dqkv[static_cast<size_t>((b * T + j) * 3 * width + 2 * width + h * D + d)] +=
                  p[static_cast<size_t>(j)] * d_out[o];
            }
            delta += p[static_cast<size_t>(j)] * dp[static_cast<size_t>(j)];
          }
          for (int64_t j = lo; j <= i; ++j) {
            const double ds = p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - delta);
            want_dbias[static_cast<size_t>(h * T + T - 1 - (i - j))] += ds;
            for (int64_t d = 0; d < D; ++d) {
              dq[static_cast<size_t>(i)][static_cast<size_t>(d)] +=
                  ds * scale * k[static_cast<size_t>(j)][static_cast<size_t>(d)];
              dk[static_cast<size_t>(j)][static_cast<size_t>(d)] +=
                  ds * scale * q[static_cast<size_t>(i)][static_cast<size_t>(d)];
            }
          }
        }
        for (int64_t t = 0; t < T; ++t) {
          const auto dq_t = turned(0, t, 0, -1, &dq[static_cast<size_t>(t)]),
                     dk_t = turned(0, t, 0, -1, &dk[static_cast<size_t>(t)]);
          for (int64_t d = 0; d < D; ++d) {
            want_dqkv[static_cast<size_t>((b * T + t) * 3 * width + h * D + d)] = dq_t[static_cast<size_t>(d)];
            want_dqkv[static_cast<size_t>((b * T + t) * 3 * width + width + h * D + d)] = dk_t[static_cast<size_t>(d)];
          }
        }
      }
    }
  }

  Context& context;
  Case c;
  int64_t n, width;
  std::vector<float> qkv, out, lse, slopes, table, cos, sin;
  std::vector<int32_t> visited, first_key;
  AttentionOptions options;
  KeyStore store;
  AttentionScratch scratch;
  Workspace memory;
};

template <class A, class B>
void expect_close(const A& got, const B& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 1, worst = 0;  // inputs are of order 1: smaller results come from cancellation
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) scale = std::max(scale, std::abs(static_cast<double>(want[i])));
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])) / scale;
    if (!(error <= worst)) worst = error, where = i;
  }
  EXPECT_LE(worst, tolerance) << what << " at " << where << ": " << got[where] << " for " << want[where];
}

void check(const Case& c, Context& context = test_context()) {
  Fixture f(c, context);
  const auto d_out = random_floats(f.n * f.width, 5);
  std::vector<float> d_qkv, d_bias;
  std::vector<double> out, dqkv, dbias;
  f.forward();
  f.backward(d_out, d_qkv, d_bias);
  f.reference(d_out, out, dqkv, dbias);
  const double rounding = std::max(1.0f, c.scale * c.scale);  // errors grow with the size of the scores
  expect_close(f.out, out, 2e-6 * rounding, "out");
  expect_close(d_qkv, dqkv, 1e-5 * rounding, "d_qkv");
  if (c.bias != DistanceBias::Kind::kNone) expect_close(d_bias, dbias, 1e-5 * rounding, "d_bias");
}

using Kind = DistanceBias::Kind;

TEST(Attention, EqualsThePlainFormulaAtAwkwardSizes) {
  for (const int64_t queries : {1, 2, 15, 16, 17, 95, 96, 97, 127, 128, 129, 200, 300}) {
    for (const int64_t dim : {8, 16, 20, 64}) {
      for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
        SCOPED_TRACE(testing::Message() << "T " << queries << " D " << dim << " bias " << static_cast<int>(kind));
        check({.shape = {.sequences = 2, .queries = queries, .heads = 2, .head_dim = dim}, .bias = kind});
      }
    }
  }
}

TEST(Attention, RotatesQueriesAndKeys) {
  for (const bool interleaved : {false, true}) {
    for (const int pairs : {1, 4, 8, 12}) {
      SCOPED_TRACE(testing::Message() << pairs << " pairs, interleaved " << interleaved);
      check({.shape = {.sequences = 1, .queries = 150, .heads = 2, .head_dim = 24},
             .rotary_pairs = pairs,
             .interleaved = interleaved});
    }
  }
}

TEST(Attention, DocumentsDoNotSeeEachOther) {
  for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
    check({.shape = {.sequences = 2, .queries = 333, .heads = 1, .head_dim = 16}, .bias = kind, .documents = true});
  }
}

TEST(Attention, ExtremeScoresStayFinite) {
  check({.shape = {.sequences = 1, .queries = 260, .heads = 2, .head_dim = 16}, .bias = Kind::kLinear, .scale = 6});
}

TEST(Attention, AppendingToTheStoreEqualsTheWholePass) {
  for (const Kind kind : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
    Case c{.shape = {.sequences = 2, .queries = 290, .heads = 2, .head_dim = 24}, .bias = kind, .rotary_pairs = 8};
    Fixture whole(c), parts(c);
    whole.forward();
    const int64_t w = whole.width;
    int64_t past = 0;
    for (const int64_t step : {1, 1, 100, 15, 17, 1, 130, 25}) {
      AttentionShape shape = c.shape;
      shape.past = past, shape.queries = step;
      std::vector<float> qkv, out(static_cast<size_t>(2 * step * w)), lse(static_cast<size_t>(4 * step));
      for (int64_t b = 0; b < 2; ++b) {
        const auto* from = parts.qkv.data() + (b * 290 + past) * 3 * w;
        qkv.insert(qkv.end(), from, from + step * 3 * w);
      }
      attention_forward(test_context(), shape, parts.options, {qkv.data(), 2 * step, 3 * w}, parts.store, parts.scratch,
                        {out.data(), 2 * step, w}, lse, {parts.visited});
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t i = 0; i < step * w; ++i) {
          ASSERT_NEAR(out[static_cast<size_t>(b * step * w + i)],
                      whole.out[static_cast<size_t>((b * 290 + past) * w + i)], 3e-6);
        }
      }
      past += step;
    }
    ASSERT_EQ(past, 290);
  }
}

// Runs `body` once for every instruction set this machine has.
void for_each_target(const std::function<void()>& body) {
  for (int64_t targets = hwy::SupportedTargets(); targets; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Attention, EveryInstructionSetAgrees) {
  for_each_target([] {
    check({.shape = {.sequences = 1, .queries = 150, .heads = 2, .head_dim = 20},
           .bias = Kind::kLinear,
           .rotary_pairs = 5});
    check({.shape = {.sequences = 1, .queries = 131, .heads = 1, .head_dim = 8},
           .bias = Kind::kTable,
           .documents = true});
  });
}

TEST(Attention, ThreadsChangeNothing) {
  const Case c{.shape = {.sequences = 2, .queries = 210, .heads = 3, .head_dim = 16}, .bias = Kind::kTable};
  const auto d_out = random_floats(2 * 210 * 48, 5);
  std::vector<std::vector<float>> results;
  for (const int count : {1, 2}) {
    Context context(count);
    Fixture f(c, context);
    std::vector<float> d_qkv, d_bias;
    f.forward();
    f.backward(d_out, d_qkv, d_bias);
    results.push_back(f.out), results.push_back(d_qkv), results.push_back(d_bias);
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i], results[i + 3]);
}

TEST(Attention, FewHeadsAreCutIntoPartsForManyThreads) {
  Context five(5);
  for (const Kind bias : {Kind::kNone, Kind::kLinear, Kind::kTable}) {
    check({.shape = {.sequences = 1, .queries = 700, .heads = 1, .head_dim = 16}, .bias = bias, .rotary_pairs = 4},
          five);
    check({.shape = {.sequences = 1, .queries = 290, .heads = 3, .head_dim = 24}, .bias = bias, .documents = true},
          five);
  }
}

// Far keys: the mass left out never exceeds epsilon, whatever the values.

struct FarCase {
  const char* name;
  float scale;       // of queries and keys
  int64_t huge_key;  // position of a key a hundred times larger; -1: none
  bool sink;         // key 0 aligned with every query
};

TEST(FarKeys, WhatIsLeftOutStaysBelowEpsilon) {
  const int64_t length = 1500;
  for (const FarCase& far : {FarCase{"plain", 0.3f, -1, false},
                             {"large", 3, -1, false},
                             {"huge far key", 0.3f, 200, false},
                             {"sink", 0.5f, -1, true},
                             {"tiny", 1e-4f, -1, false}}) {
    for (const float epsilon : {0x1p-24f, 1e-3f}) {
      SCOPED_TRACE(testing::Message() << far.name << " epsilon " << epsilon);
      Case c{.shape = {.sequences = 1, .queries = length, .heads = 6, .head_dim = 16},
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
      full.forward();
      cut.forward();
      const TileCount tiles = count_tiles(c.shape, {cut.visited});
      if (far.huge_key < 0) {
        EXPECT_LT(tiles.seen, tiles.all) << "nothing was left out: the test shows nothing";
      }
      // lse grows by at most -ln(1 - P) when the rest is added, P the share left out; fp32 adds its rounding.
      for (size_t i = 0; i < full.lse.size(); ++i) {
        const double left_out = 1 - std::exp(static_cast<double>(cut.lse[i]) - full.lse[i]);
        ASSERT_LE(left_out, epsilon + 4e-7 * (1 + std::abs(full.lse[i]))) << "row " << i;
      }
      const auto d_out = random_floats(full.n * full.width, 5);
      std::vector<float> d_full, d_cut, bias_full, bias_cut;
      full.backward(d_out, d_full, bias_full);
      cut.backward(d_out, d_cut, bias_cut);
      if (epsilon < 1e-6f) {
        expect_close(cut.out, full.out, 1e-6, "out");
        expect_close(d_cut, d_full, 1e-5, "d_qkv");
      }
    }
  }
}

TEST(FarKeys, OtherBiasesNeverSkip) {
  for (const Kind kind : {Kind::kNone, Kind::kTable}) {
    Fixture f({.shape = {.sequences = 1, .queries = 600, .heads = 2, .head_dim = 16}, .bias = kind, .epsilon = 0.5f});
    f.forward();
    const TileCount tiles = count_tiles(f.c.shape, {f.visited});
    EXPECT_EQ(tiles.seen, tiles.all);
  }
  // A slope of zero or below has no tail to bound.
  Fixture f(
      {.shape = {.sequences = 1, .queries = 600, .heads = 2, .head_dim = 16}, .bias = Kind::kLinear, .epsilon = 0.5f});
  f.slopes = {0, -0.5f};
  f.options.bias.slopes = f.slopes;
  f.forward();
  const TileCount tiles = count_tiles(f.c.shape, {f.visited});
  EXPECT_EQ(tiles.seen, tiles.all);
}

}  // namespace
}  // namespace longshot
