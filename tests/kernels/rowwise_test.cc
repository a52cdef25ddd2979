// Row-wise kernels against plain loops in double, at every awkward width and offset, on every instruction set.
#include "kernels/rowwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "context.h"
#include "kernels/norm.h"
#include "kernels/support.h"
#include "kernels/update.h"

namespace longshot {
namespace {

// f(width, offset) on every instruction set.
void for_each_size(const std::function<void(int64_t, int64_t)>& f) {
  for_each_target([&] {
    for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100}) {
      for (const int64_t offset : {0, 1, 3}) f(n, offset);
    }
  });
}

TEST(Rowwise, NormForwardAndBackward) {
  for_each_size([](int64_t n, int64_t offset) {
    for (const bool rms : {false, true}) {
      Guarded x(3, n, offset, 1), y(3, n, offset + 1, 2), dy(3, n, offset, 3), dx(3, n, offset, 4),
          before(3, n, offset, 4);
      Guarded w(1, n, offset, 5), b(1, n, offset, 6);
      const Norm norm{
          .weight = {w.mat().data, static_cast<size_t>(n)}, .bias = {b.mat().data, static_cast<size_t>(n)}, .rms = rms};
      float mean[3], rstd[3];
      const NormInput input{x.mat(), {mean, rstd}};
      norm_forward(test_context(), norm, x.mat(), y.mat(), input.stats);
      norm_backward(test_context(), norm, dy.mat(), input, dx.mat());
      std::vector<float> dw(static_cast<size_t>(n), 0.5f), db(static_cast<size_t>(n), 0.25f);
      norm_backward_weights(test_context(), dy.mat(), input, {dw, db});
      std::vector<double> want_dw(static_cast<size_t>(n), 0.5), want_db(static_cast<size_t>(n), 0.25);
      for (int64_t r = 0; r < 3; ++r) {
        double m = 0, v = 0, g_mean = 0, gx_mean = 0;
        if (!rms)
          for (int64_t c = 0; c < n; ++c) m += x.mat()(r, c) / static_cast<double>(n);
        for (int64_t c = 0; c < n; ++c) v += std::pow(x.mat()(r, c) - m, 2) / static_cast<double>(n);
        const double s = 1 / std::sqrt(v + 1e-5);
        const auto xhat = [&](int64_t c) { return (x.mat()(r, c) - m) * s; };
        for (int64_t c = 0; c < n; ++c) {
          ASSERT_NEAR(y.mat()(r, c), w.mat()(0, c) * xhat(c) + b.mat()(0, c), 2e-4);
          const double g = w.mat()(0, c) * dy.mat()(r, c);
          if (!rms) g_mean += g / static_cast<double>(n);
          gx_mean += g * xhat(c) / static_cast<double>(n);
          want_dw[static_cast<size_t>(c)] += dy.mat()(r, c) * xhat(c);
          want_db[static_cast<size_t>(c)] += dy.mat()(r, c);
        }
        for (int64_t c = 0; c < n; ++c) {
          const double g = w.mat()(0, c) * dy.mat()(r, c);
          const double want = before.mat()(r, c) + s * (g - g_mean - xhat(c) * gx_mean);
          ASSERT_NEAR(dx.mat()(r, c), want, 1e-5 * (1 + s) + 1e-5 * std::abs(want)) << "width " << n;
        }
      }
      for (size_t c = 0; c < dw.size(); ++c) {
        ASSERT_NEAR(dw[c], want_dw[c], 1e-3);
        ASSERT_NEAR(db[c], want_db[c], 1e-5);
      }
      y.expect_guards_intact();
      dx.expect_guards_intact();
    }
  });
}

double activate(Activation kind, double x) {
  if (kind == Activation::kRelu) return std::max(x, 0.0);
  if (kind == Activation::kGeluExact) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(Rowwise, ActivationsAndTheirSlopes) {
  for_each_size([](int64_t n, int64_t offset) {
    for (const Activation kind : {Activation::kRelu, Activation::kGelu, Activation::kGeluExact}) {
      Guarded pre(2, n, offset, 1), act(2, n, offset, 2), d(2, n, offset, 3), d_pre(2, n, offset, 4),
          bias(1, n, offset, 5), copy(2, n, offset, 1);
      activation_forward(test_context(), {kind, bias.mat().data, {}}, pre.mat(), act.mat());
      activation_backward(test_context(), {kind, nullptr, {}}, pre.mat(), d.mat(), d_pre.mat());
      for (int64_t r = 0; r < 2; ++r) {
        for (int64_t c = 0; c < n; ++c) {
          const double x = static_cast<double>(copy.mat()(r, c)) + bias.mat()(0, c);
          ASSERT_NEAR(act.mat()(r, c), activate(kind, x), 2e-6);
          if (std::abs(x) < 1e-3) continue;
          const double slope = (activate(kind, x + 1e-5) - activate(kind, x - 1e-5)) / 2e-5;
          ASSERT_NEAR(d_pre.mat()(r, c), slope * d.mat()(r, c), 1e-5);
        }
      }
      act.expect_guards_intact();
      d_pre.expect_guards_intact();
    }
  });
}

// Also where the normal distribution has hardly anything left, on every instruction set.
// The tail is t e^(-z^2 + R). Of z^2 the rounded 1/sqrt(2), the product with it and the sum with R are off by up to 5 z^2
// units of 2^-24 in all; the polynomial and the exponential by a dozen.
TEST(Rowwise, ExactGeluFarOut) {
  std::vector<float> x, y(2001), dy(2001, 1), dx(2001);
  for (int i = -1000; i <= 1000; ++i) x.push_back(static_cast<float>(i) * 0.009f);
  std::vector<float> pre = x;
  const ActivationStep step{Activation::kGeluExact, nullptr, {}};
  const auto row = [](std::vector<float>& v) { return Mat(v.data(), 1, static_cast<int64_t>(v.size())); };
  activation_forward(test_context(), step, row(pre), row(y));
  activation_backward(test_context(), step, row(pre), row(dy), row(dx));
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i], share = 0.5 * std::erfc(-at / std::sqrt(2.0));
    const double want = at * share, slope = share + at * std::exp(-at * at / 2) / std::sqrt(2 * M_PI);
    EXPECT_NEAR(y[i], want, (12 + 5 * at * at / 2) * 0x1p-24 * std::abs(want)) << at;
    EXPECT_NEAR(dx[i], slope, 1e-6) << at;
  }
  const float hostile[] = {HUGE_VALF, -1e30f, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> in(std::begin(hostile), std::end(hostile)), out(3);
  activation_forward(test_context(), step, row(in), row(out));
  EXPECT_EQ(out[0], HUGE_VALF);
  EXPECT_EQ(out[1], 0);
  EXPECT_TRUE(std::isnan(out[2]));
}

TEST(Rowwise, ClippingAndItsGradient) {
  for_each_size([](int64_t n, int64_t offset) {
    Guarded x(2, n, offset, 1), d(2, n, offset, 2), copy(2, n, offset, 1), d_copy(2, n, offset, 2);
    clip(test_context(), x.mat(), 0.5f);
    clip_backward(test_context(), x.mat(), 0.5f, d.mat());
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        const float was = copy.mat()(r, c);
        ASSERT_EQ(x.mat()(r, c), std::min(std::max(was, -0.5f), 0.5f));
        ASSERT_EQ(d.mat()(r, c), std::abs(was) < 0.5f ? d_copy.mat()(r, c) : 0.0f);
      }
    }
    x.expect_guards_intact();
    d.expect_guards_intact();
  });
  float nan = std::numeric_limits<float>::quiet_NaN();
  clip(test_context(), {&nan, 1, 1}, 0.5f);
  EXPECT_TRUE(std::isnan(nan));
}

TEST(Rowwise, Swiglu) {
  for_each_size([](int64_t n, int64_t offset) {
    Guarded pre(2, 2 * n, offset, 1), act(2, n, offset, 2), d(2, n, offset, 3), d_pre(2, 2 * n, offset, 4);
    const ActivationStep step{Activation::kSwiglu, nullptr, {}};
    activation_forward(test_context(), step, pre.mat(), act.mat());
    activation_backward(test_context(), step, pre.mat(), d.mat(), d_pre.mat());
    const auto f = [](double gate, double up) { return gate / (1 + std::exp(-gate)) * up; };
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        const double gate = pre.mat()(r, c), up = pre.mat()(r, n + c), h = 1e-5;
        ASSERT_NEAR(act.mat()(r, c), f(gate, up), 5e-6);
        ASSERT_NEAR(d_pre.mat()(r, c), (f(gate + h, up) - f(gate - h, up)) / (2 * h) * d.mat()(r, c), 2e-5);
        ASSERT_NEAR(d_pre.mat()(r, n + c), (f(gate, up + h) - f(gate, up - h)) / (2 * h) * d.mat()(r, c), 2e-5);
      }
    }
    d_pre.expect_guards_intact();
  });
}

TEST(Rowwise, CrossEntropy) {
  for_each_size([](int64_t n, int64_t offset) {
    Guarded x(3, n, offset, 1), copy(3, n, offset, 1);
    for (const bool extreme : {false, true}) {
      if (extreme)
        x.mat()(0, 0) = copy.mat()(0, 0) = 300,
                   x.mat()(1, n - 1) = copy.mat()(1, n - 1) = -std::numeric_limits<float>::infinity();
      if (extreme && n < 2) continue;
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t c = 0; c < n; ++c) x.mat()(r, c) = copy.mat()(r, c);
      const int32_t targets[] = {0, static_cast<int32_t>((n - 1) / 2), -1};
      float loss[3];
      cross_entropy(test_context(), x.mat(), targets, loss, 0.5f);
      for (int64_t r = 0; r < 3; ++r) {
        double largest = -1e300, z = 0;
        for (int64_t c = 0; c < n; ++c) largest = std::max<double>(largest, copy.mat()(r, c));
        for (int64_t c = 0; c < n; ++c) z += std::exp(copy.mat()(r, c) - largest);
        for (int64_t c = 0; c < n; ++c) {
          const double p = std::exp(copy.mat()(r, c) - largest) / z;
          ASSERT_NEAR(x.mat()(r, c), targets[r] < 0 ? 0.0 : 0.5 * (p - (c == targets[r])), 1e-6);
        }
        ASSERT_NEAR(loss[r], targets[r] < 0 ? 0.0 : std::log(z) + largest - copy.mat()(r, targets[r]), 3e-5);
      }
      x.expect_guards_intact();
    }
  });
}

TEST(Rowwise, DropoutKeepsTheMeanAndRepeats) {
  for_each_target([] {
    const int64_t n = 1000;
    std::vector<float> ones(static_cast<size_t>(50 * n), 1.0f), a = ones, b = ones;
    const Dropout drop{.rate = 0.3f, .key = 42, .first_row = 0};
    drop_rows(test_context(), {ones.data(), 50, n}, drop, {a.data(), 50, n});
    for (int64_t r = 0; r < 50; r += 10)
      drop_rows(test_context(), {ones.data() + r * n, 10, n}, drop.block(r), {b.data() + r * n, 10, n});
    EXPECT_EQ(a, b) << "blocks must see the same mask as the whole";
    double sum = 0, kept = 0;
    for (const float v : a) {
      ASSERT_TRUE(v == 0 || std::abs(v - 1 / 0.7f) < 1e-6);
      sum += v, kept += v > 0;
    }
    EXPECT_NEAR(kept / (50.0 * n), 0.7, 0.01);
    EXPECT_NEAR(sum / (50.0 * n), 1.0, 0.015);
    std::vector<float> other = ones;
    drop_rows(test_context(), {ones.data(), 50, n}, {.rate = 0.3f, .key = 43, .first_row = 0}, {other.data(), 50, n});
    EXPECT_NE(a, other);
  });
}

TEST(Rowwise, DropoutOfRowsFromAnywhere) {
  const int64_t n = 37;
  std::vector<float> ones(static_cast<size_t>(40 * n), 1.0f), whole = ones;
  const Dropout drop{.rate = 0.3f, .key = 42};
  drop_rows(test_context(), {ones.data(), 40, n}, drop, {whole.data(), 40, n});
  std::vector<int32_t> rows;
  for (int32_t r = 39; r >= 0; r -= 2) rows.push_back(r);
  std::vector<float> some(rows.size() * static_cast<size_t>(n), 1.0f);
  const Mat x(some.data(), static_cast<int64_t>(rows.size()), n);
  drop_rows(test_context(), x, {.rate = 0.3f, .key = 42, .rows = rows.data()}, x);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto at = whole.begin() + rows[i] * n;
    EXPECT_TRUE(std::equal(at, at + n, x.row(static_cast<int64_t>(i)))) << i;
  }
}

// Rows go in pieces of 8192 columns. A sum of up to 256 positive floats is off by at most 256 * 2^-24 of itself.
TEST(Rowwise, LogSoftmax) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{19, 23}, {5, 8193}, {1, 20000}}) {
    Guarded copy(rows, cols, 1, 1);
    copy.mat()(rows / 5, cols / 5) = 400;
    for_each_target([&, n = rows, v = cols] {
      Guarded x = copy, alone = copy;
      log_softmax(test_context(), x.mat());
      Context one(1);
      log_softmax(one, alone.mat().rows_from(n - 1, 1));
      for (int64_t r = 0; r < n; ++r) {
        double largest = -1e300, z = 0;
        for (int64_t c = 0; c < v; ++c) largest = std::max<double>(largest, copy.mat()(r, c));
        for (int64_t c = 0; c < v; ++c) z += std::exp(copy.mat()(r, c) - largest);
        const double log_z = largest + std::log(z), ulp = std::max(std::abs(log_z), 8.0) * 0x1p-23;
        for (int64_t c = 0; c < v; ++c)
          ASSERT_NEAR(x.mat()(r, c), copy.mat()(r, c) - log_z, 2 * ulp + 0x1p-16) << r << ", " << c;
      }
      for (int64_t c = 0; c < v; ++c) ASSERT_EQ(alone.mat()(n - 1, c), x.mat()(n - 1, c));
      x.expect_guards_intact();
    });
  }
}

TEST(Rowwise, ThreadsChangeNothing) {
  const int64_t rows = 100, cols = 200;
  Guarded x(rows, cols, 1, 1), y(rows, cols, 0, 2);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3}) {
    Context context(threads);
    std::vector<float> w(cols, 1.5f), b(cols, 0.5f), dw(cols), db(cols), sums(cols), mean(rows), rstd(rows);
    Guarded out(rows, cols, 1, 3), dx(rows, cols, 1, 4);
    const Norm norm{.weight = w, .bias = b};
    const NormInput input{x.mat(), {mean, rstd}};
    norm_forward(context, norm, x.mat(), out.mat(), input.stats);
    norm_backward_weights(context, y.mat(), input, {dw, db});
    norm_backward(context, norm, y.mat(), input, dx.mat());
    column_sums(context, dx.mat(), sums);
    add_residual(context, out.mat(), {dx.mat(), b.data(), {.rate = 0.2f, .key = 5}}, out.mat());
    std::vector<float> all = dw;
    for (const auto& part : {db, sums, mean, rstd}) all.insert(all.end(), part.begin(), part.end());
    for (int64_t r = 0; r < rows; ++r) all.insert(all.end(), out.mat().row(r), out.mat().row(r) + cols);
    results.push_back(all);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Rowwise, ResidualBiasAndColumnSums) {
  for_each_size([](int64_t n, int64_t offset) {
    Guarded x(4, n, offset, 1), y(4, n, offset, 2), bias(1, n, offset, 3), out(4, n, offset, 4);
    add_residual(test_context(), x.mat(), {y.mat(), bias.mat().data, {}}, out.mat());
    std::vector<float> sums(static_cast<size_t>(n), 1.0f);
    column_sums(test_context(), out.mat(), sums);
    for (int64_t c = 0; c < n; ++c) {
      double sum = 1;
      for (int64_t r = 0; r < 4; ++r) {
        ASSERT_NEAR(out.mat()(r, c), x.mat()(r, c) + y.mat()(r, c) + bias.mat()(0, c), 1e-6);
        sum += out.mat()(r, c);
      }
      ASSERT_NEAR(sums[static_cast<size_t>(c)], sum, 1e-5);
    }
    out.expect_guards_intact();
  });
}

TEST(Update, AdamWNagAndSgdFollowTheirFormulas) {
  for_each_size([](int64_t n, int64_t offset) {
    Guarded w(1, n, offset, 1), g(1, n, offset, 2), m(1, n, offset, 3), v(1, n, offset, 4);
    for (int64_t i = 0; i < n; ++i) v.mat()(0, i) = std::abs(v.mat()(0, i));
    Guarded w0 = w, g0 = g, m0 = m, v0 = v;
    UpdateRange r{w.mat().data, g.mat().data, m.mat().data, v.mat().data, n, 0.5f, 0.1f};
    adamw_update({.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .correction1 = 0.3f, .correction2 = 0.2f},
                 r);
    for (int64_t i = 0; i < n; ++i) {
      const double grad = 0.5 * g0.mat()(0, i), m1 = 0.9 * m0.mat()(0, i) + 0.1 * grad,
                   v1 = 0.95 * v0.mat()(0, i) + 0.05 * grad * grad;
      ASSERT_NEAR(w.mat()(0, i), w0.mat()(0, i) * (1 - 0.001) - 0.01 * (m1 / 0.3) / (std::sqrt(v1 / 0.2) + 1e-8), 2e-6);
      ASSERT_EQ(g.mat()(0, i), 0.0f) << "the gradient is cleared";
    }
    w.expect_guards_intact();
    g = g0, w = w0, m = m0;
    r = {w.mat().data, g.mat().data, m.mat().data, nullptr, n, 1.0f, 0.0f};
    nag_update({.lr = 0.4f, .momentum = 0.99f, .correction = 0.8f}, r);
    for (int64_t i = 0; i < n; ++i) {
      const double grad = g0.mat()(0, i), velocity = m0.mat()(0, i);
      ASSERT_NEAR(w.mat()(0, i), w0.mat()(0, i) + 0.99 * 0.99 * 0.8 * velocity - 1.99 * 0.4 * grad, 1e-5);
      ASSERT_NEAR(m.mat()(0, i), 0.99 * 0.8 * velocity - 0.4 * grad, 1e-6);
    }
    g = g0, w = w0, m = m0;
    r = {w.mat().data, g.mat().data, m.mat().data, nullptr, n, 1.0f, 0.1f};
    sgd_update({.lr = 0.4f, .momentum = 0.9f}, r);
    for (int64_t i = 0; i < n; ++i) {
      const double velocity = 0.9 * m0.mat()(0, i) + g0.mat()(0, i) + 0.1 * w0.mat()(0, i);
      ASSERT_NEAR(w.mat()(0, i), w0.mat()(0, i) - 0.4 * velocity, 2e-6);
    }
  });
}

}  // namespace
}  // namespace longshot
