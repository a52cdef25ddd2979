// Attention by the plain formula, in double, query by query: what the tiled passes are compared with.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/rng.h"
#include "kernels/attention.h"

namespace longshot {

inline std::vector<float> random_floats(int64_t n, uint64_t stream, float scale = 1) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = scale * static_cast<float>(normal(7, Stream::kTest, stream, i));
  return v;
}

// Densely packed: q, out [B, T, H, D]; k, v [B, S, G, D], G = key_heads.
struct PlainAttention {
  int64_t sequences = 1, queries = 0, keys = 0, heads = 1, key_heads = 1, dim = 0;
  std::vector<int64_t> position;  // [B] of the first query
  bool causal = true;
  int64_t window = 0;
  std::vector<int32_t> first, last;  // [B, T] or empty
  double scale = 0;                  // 0: 1 / sqrt(D)
  DistanceBias bias;
  std::vector<float> cos, sin;  // [positions, pairs]
  int64_t pairs = 0;
  bool interleaved = false;
  std::function<double(int64_t b, int64_t h, int64_t i, int64_t j)> term;
  std::vector<float> q, k, v, d_out;

  std::vector<double> out, lse, d_q, d_k, d_v;
  std::vector<double> d_bias;  // [H, columns]: of the table, or by |distance| as a linear bias has it
  std::vector<double> d_term;  // [B, H, S] summed over the queries
  // The largest sums of absolute terms in d_k and in a slope's gradient: what rounding is a share of.
  double terms = 0, slope_terms = 0;

  void fill_random(float size = 1) {
    q = random_floats(sequences * queries * heads * dim, 11, size);
    k = random_floats(sequences * keys * key_heads * dim, 12, size);
    v = random_floats(sequences * keys * key_heads * dim, 13);
    d_out = random_floats(sequences * queries * heads * dim, 14);
  }

  int64_t bias_columns = 0;  // of a linear bias's gradient
  int64_t columns() const { return bias.kind == DistanceBias::Kind::kTable ? bias.table.cols : bias_columns; }

  void run() {
    out.assign(q.size(), 0), d_q.assign(q.size(), 0), d_k.assign(k.size(), 0), d_v.assign(v.size(), 0);
    lse.assign(static_cast<size_t>(sequences * heads * queries), 0);
    d_bias.assign(static_cast<size_t>(heads * columns()), 0);
    d_term.assign(static_cast<size_t>(sequences * heads * keys), 0);
    absolute_.assign(k.size(), 0);
    for (int64_t b = 0; b < sequences; ++b) {
      for (int64_t h = 0; h < heads; ++h) head(b, h);
    }
    for (const double sum : absolute_) terms = std::max(terms, sum);
  }

 private:
  using Vector = std::vector<double>;

  Vector turned(Vector x, int64_t p, double direction) const {
    for (int64_t c = 0; c < pairs; ++c) {
      double& a = x[static_cast<size_t>(interleaved ? 2 * c : c)];
      double& z = x[static_cast<size_t>(interleaved ? 2 * c + 1 : c + pairs)];
      const double cs = cos[static_cast<size_t>(p * pairs + c)];
      const double sn = direction * sin[static_cast<size_t>(p * pairs + c)];
      const double a0 = a, z0 = z;
      a = a0 * cs - z0 * sn, z = a0 * sn + z0 * cs;
    }
    return x;
  }
  size_t query_at(int64_t b, int64_t t, int64_t h) const {
    return static_cast<size_t>(((b * queries + t) * heads + h) * dim);
  }
  size_t key_at(int64_t b, int64_t j, int64_t h) const {
    return static_cast<size_t>(((b * keys + j) * key_heads + h / (heads / key_heads)) * dim);
  }
  // The column of distance d, and what it adds there.
  int64_t column(int64_t d) const {
    if (bias.ahead == 0) d = std::abs(d);
    const int64_t far = columns() - bias.ahead - 1;
    return far - std::min(std::max(d, -bias.ahead), far);
  }
  double bias_at(int64_t h, int64_t i, int64_t d) const {
    if (bias.query_slopes.data)
      return -static_cast<double>(bias.query_slopes(i - bias.first, h)) * static_cast<double>(d);
    if (bias.kind == DistanceBias::Kind::kLinear)
      return -static_cast<double>(bias.slopes[static_cast<size_t>(h)]) * static_cast<double>(std::abs(d));
    return bias.kind == DistanceBias::Kind::kTable ? bias.table(h, column(d)) : 0.0;
  }

  struct Query {
    int64_t b, h, t;
    int64_t i;       // its position
    int64_t lo, hi;  // the keys it sees
  };
  struct TurnedKeys {
    double scale;
    std::vector<Vector> k, dk;  // [S, D]
  };

  void head(int64_t b, int64_t h) {
    const auto D = static_cast<size_t>(dim);
    slope_sum_ = 0;
    TurnedKeys turned_keys{.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(dim)),
                           .k = {},
                           .dk = std::vector<Vector>(static_cast<size_t>(keys), Vector(D))};
    for (int64_t j = 0; j < keys; ++j) {
      const auto at = k.begin() + static_cast<int64_t>(key_at(b, j, h));
      turned_keys.k.push_back(turned(Vector(at, at + dim), j, 1));
    }
    for (int64_t t = 0; t < queries; ++t) {
      const int64_t i = position[static_cast<size_t>(b)] + t;
      const auto entry = static_cast<size_t>(b * queries + t);
      int64_t lo = std::max<int64_t>(first.empty() ? 0 : first[entry], 0);
      int64_t hi = std::min({causal ? i + 1 : keys, last.empty() ? keys : last[entry], keys});
      while (window > 0 && lo < hi && i - lo >= window) ++lo;
      while (window > 0 && hi > lo && hi - 1 - i >= window) --hi;
      const auto q_at = q.begin() + static_cast<int64_t>(query_at(b, t, h));
      row({b, h, t, i, lo, hi}, turned(Vector(q_at, q_at + dim), i, 1), turned_keys);
    }
    for (int64_t j = 0; j < keys; ++j) {
      const Vector back = turned(turned_keys.dk[static_cast<size_t>(j)], j, -1);
      for (size_t c = 0; c < D; ++c) d_k[key_at(b, j, h) + c] += back[c];
    }
    slope_terms = std::max(slope_terms, slope_sum_);
  }

  // x[D]: the query, turned.
  void row(const Query& query, const Vector& x, TurnedKeys& turned_keys) {
    const auto [b, h, t, i, lo, hi] = query;
    auto& [s_scale, turned_k, dk] = turned_keys;
    const auto D = static_cast<size_t>(dim);
    const size_t at = query_at(b, t, h), lse_at = static_cast<size_t>((b * heads + h) * queries + t);
    lse[lse_at] = -HUGE_VAL;
    if (lo >= hi) return;
    Vector p, dp;
    double largest = -HUGE_VAL, z = 0, delta = 0;
    for (int64_t j = lo; j < hi; ++j) {
      double s = 0;
      for (size_t c = 0; c < D; ++c) s += x[c] * turned_k[static_cast<size_t>(j)][c];
      p.push_back(s * s_scale + bias_at(h, i, i - j) + (term ? term(b, h, i, j) : 0.0));
      largest = std::max(largest, p.back());
    }
    for (double& s : p) z += s = std::exp(s - largest);
    lse[lse_at] = largest + std::log(z);
    for (int64_t j = lo; j < hi; ++j) {
      double& share = p[static_cast<size_t>(j - lo)];
      share /= z;
      dp.push_back(0);
      for (size_t c = 0; c < D; ++c) {
        const size_t key = key_at(b, j, h) + c;
        out[at + c] += share * v[key];
        dp.back() += static_cast<double>(d_out[at + c]) * v[key];
        d_v[key] += share * d_out[at + c];
      }
      delta += share * dp.back();
    }
    Vector dq(D);
    for (int64_t j = lo; j < hi; ++j) {
      const double share = p[static_cast<size_t>(j - lo)], dpj = dp[static_cast<size_t>(j - lo)];
      const double ds = share * (dpj - delta);
      slope_sum_ += share * (std::abs(dpj) + std::abs(delta)) * static_cast<double>(std::abs(i - j));
      if (columns() > 0) d_bias[static_cast<size_t>(h * columns() + column(i - j))] += ds;
      d_term[static_cast<size_t>((b * heads + h) * keys + j)] += ds;
      for (size_t c = 0; c < D; ++c) {
        dq[c] += ds * s_scale * turned_k[static_cast<size_t>(j)][c];
        dk[static_cast<size_t>(j)][c] += ds * s_scale * x[c];
        absolute_[key_at(b, j, h) + c] += share * (std::abs(dpj) + std::abs(delta)) * s_scale * std::abs(x[c]);
      }
    }
    dq = turned(dq, i, -1);
    for (size_t c = 0; c < D; ++c) d_q[at + c] = dq[c];
  }

  Vector absolute_;
  double slope_sum_ = 0;
};

// Inputs are of order 1, so errors are measured against the largest value, or `size`: smaller results come from
// cancellation.
template <class A, class B>
void expect_close(const A& got, const B& want, double tolerance, const char* what, double size = 1) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double worst = 0;
  size_t where = 0;
  for (const auto w : want) {
    if (std::isfinite(w)) size = std::max(size, std::abs(static_cast<double>(w)));
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (static_cast<double>(got[i]) == static_cast<double>(want[i])) continue;  // -inf as well
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])) / size;
    if (!(error <= worst)) worst = error, where = i;
  }
  if (!got.empty()) {
    EXPECT_LE(worst, tolerance) << what << " at " << where << ": " << got[where] << " for " << want[where];
  }
}

}  // namespace longshot
