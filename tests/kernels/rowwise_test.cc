// Row-wise kernels against plain loops in double, at every awkward width and offset, on every instruction set.
#include "kernels/rowwise.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "context.h"
#include "kernels/gemm.h"
#include "kernels/update.h"

namespace longshot {
namespace {

// A matrix whose rows begin at an odd address and are followed by values that must not change.
class Guarded {
 public:
  Guarded(int64_t rows, int64_t cols, int64_t offset, uint64_t stream)
      : rows_(rows), cols_(cols), offset_(offset), stride_(cols + 5) {
    data_.assign(static_cast<size_t>(offset + rows * stride_ + 8), kGuard);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        mat()(r, c) = static_cast<float>(normal(3, Stream::kTest, stream, static_cast<uint64_t>(r * cols + c)));
    }
  }
  Mat mat() { return {data_.data() + offset_, rows_, cols_, stride_}; }
  void expect_guards_intact() {
    for (int64_t i = 0; i < static_cast<int64_t>(data_.size()); ++i) {
      const int64_t column = (i - offset_) % stride_;
      const bool inside = i >= offset_ && i < offset_ + rows_ * stride_ && column < cols_;
      if (!inside) {
        ASSERT_EQ(data_[static_cast<size_t>(i)], kGuard) << "written outside at " << i;
      }
    }
  }

 private:
  static constexpr float kGuard = 12345;
  int64_t rows_, cols_, offset_, stride_;
  std::vector<float> data_;
};

void for_each_target(const std::function<void()>& body) {
  for (int64_t targets = hwy::SupportedTargets(); targets; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

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
      norm_forward(norm, x.mat(), y.mat(), mean, rstd);
      norm_backward(norm, dy.mat(), x.mat(), mean, rstd, dx.mat());
      std::vector<float> dw(static_cast<size_t>(n), 0.5f), db(static_cast<size_t>(n), 0.25f);
      norm_backward_weights(dy.mat(), x.mat(), mean, rstd, 0, n, dw.data(), db.data());
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
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(Rowwise, ActivationsAndTheirSlopes) {
  for_each_size([](int64_t n, int64_t offset) {
    for (const Activation kind : {Activation::kRelu, Activation::kGelu}) {
      Guarded pre(2, n, offset, 1), act(2, n, offset, 2), d(2, n, offset, 3), d_pre(2, n, offset, 4),
          bias(1, n, offset, 5), copy(2, n, offset, 1);
      activation_forward(kind, pre.mat(), bias.mat().data, {}, act.mat());
      activation_backward(kind, pre.mat(), d.mat(), {}, d_pre.mat());
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

TEST(Rowwise, Swiglu) {
  for_each_size([](int64_t n, int64_t offset) {
    Guarded pre(2, 2 * n, offset, 1), act(2, n, offset, 2), d(2, n, offset, 3), d_pre(2, 2 * n, offset, 4);
    activation_forward(Activation::kSwiglu, pre.mat(), nullptr, {}, act.mat());
    activation_backward(Activation::kSwiglu, pre.mat(), d.mat(), {}, d_pre.mat());
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
      cross_entropy(x.mat(), targets, loss, true, 0.5f);
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
    drop_rows({ones.data(), 50, n}, drop, {a.data(), 50, n});
    for (int64_t r = 0; r < 50; r += 10)
      drop_rows({ones.data() + r * n, 10, n}, drop.block(r), {b.data() + r * n, 10, n});
    EXPECT_EQ(a, b) << "blocks must see the same mask as the whole";
    double sum = 0, kept = 0;
    for (const float v : a) {
      ASSERT_TRUE(v == 0 || std::abs(v - 1 / 0.7f) < 1e-6);
      sum += v, kept += v > 0;
    }
    EXPECT_NEAR(kept / (50.0 * n), 0.7, 0.01);
    EXPECT_NEAR(sum / (50.0 * n), 1.0, 0.015);
    std::vector<float> other = ones;
    drop_rows({ones.data(), 50, n}, {.rate = 0.3f, .key = 43, .first_row = 0}, {other.data(), 50, n});
    EXPECT_NE(a, other);
  });
}

TEST(Rowwise, ResidualBiasAndColumnSums) {
  for_each_size([](int64_t n, int64_t offset) {
    Guarded x(4, n, offset, 1), y(4, n, offset, 2), bias(1, n, offset, 3), out(4, n, offset, 4);
    add_residual(x.mat(), y.mat(), bias.mat().data, {}, out.mat());
    std::vector<float> sums(static_cast<size_t>(n), 1.0f);
    column_sums(out.mat(), n / 2, n, sums.data());
    for (int64_t c = 0; c < n; ++c) {
      double sum = 1;
      for (int64_t r = 0; r < 4; ++r) {
        ASSERT_NEAR(out.mat()(r, c), x.mat()(r, c) + y.mat()(r, c) + bias.mat()(0, c), 1e-6);
        sum += out.mat()(r, c);
      }
      ASSERT_NEAR(sums[static_cast<size_t>(c)], c < n / 2 ? 1.0 : sum, 1e-5);
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

TEST(Gemm, ThreeFormsAgainstPlainLoops) {
  const int64_t m = 7, n = 13, k = 9;
  Guarded a(m, k, 1, 1), at(k, m, 1, 2), bt(n, k, 3, 3), b(k, n, 0, 4), c(m, n, 1, 5), c0(m, n, 1, 5);
  const auto check = [&](const std::function<double(int64_t, int64_t, int64_t)>& term, double beta) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double want = beta * c0.mat()(i, j);
        for (int64_t t = 0; t < k; ++t) want += term(i, j, t);
        ASSERT_NEAR(c.mat()(i, j), want, 1e-5);
      }
    }
    c.expect_guards_intact();
    c = c0;
  };
  gemm_nt(test_context(), a.mat(), bt.mat(), c.mat());
  check([&](int64_t i, int64_t j, int64_t t) { return a.mat()(i, t) * bt.mat()(j, t); }, 0);
  gemm_nn(test_context(), a.mat(), b.mat(), c.mat(), true);
  check([&](int64_t i, int64_t j, int64_t t) { return a.mat()(i, t) * b.mat()(t, j); }, 1);
  gemm_tn(test_context(), at.mat(), b.mat(), c.mat(), true);
  check([&](int64_t i, int64_t j, int64_t t) { return at.mat()(t, i) * b.mat()(t, j); }, 1);
}

}  // namespace
}  // namespace longshot
