// Kernels on numbers stored in bf16: the bits that they make of the floats these stand for, rounded where they write bf16.
#include "kernels/numbers.h"

#include <bit>
#include <cmath>
#include <limits>

#include "context.h"
#include "kernels/attention_fixture.h"
#include "kernels/bf16.h"
#include "kernels/gemm.h"
#include "kernels/gemm_steps.h"
#include "kernels/norm.h"
#include "kernels/rowwise.h"
#include "kernels/support.h"

namespace longshot {
namespace {

constexpr int64_t kWidths[] = {1, 3, 8, 16, 17, 33, 100};

// A guarded matrix in bf16, at an odd place.
class Halves {
 public:
  explicit Halves(ConstMat x) : Halves(x.rows, x.cols) { keep(test_context(), x, mat()); }
  Halves(int64_t rows, int64_t cols)
      : rows_(rows), cols_(cols), data_(static_cast<size_t>(3 + rows * (cols + 3)), kGuard) {}
  NumberMat mat() { return {data_.data() + 3, rows_, cols_, cols_ + 3}; }
  float operator()(int64_t r, int64_t c) { return std::bit_cast<float>(uint32_t{mat().row(r).halves[c]} << 16); }
  void expect_rounded(ConstMat x) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) {
        float want = 0;
        round_to_bf16(x.row(r) + c, &want, 1);
        ASSERT_TRUE((*this)(r, c) == want || (std::isnan(want) && std::isnan((*this)(r, c)))) << r << ", " << c;
      }
      for (int64_t c = cols_; c < cols_ + 3; ++c) ASSERT_EQ(mat().row(r).halves[c], kGuard);
    }
  }

 private:
  static constexpr uint16_t kGuard = 0x7abc;
  int64_t rows_, cols_;
  std::vector<uint16_t> data_;
};

void expect_equal(ConstMat a, ConstMat b) {
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < a.cols; ++c) ASSERT_EQ(a.row(r)[c], b.row(r)[c]) << r << ", " << c;
  }
}

// Random numbers, as bf16 and as the same floats.
struct Both {
  Both(int64_t rows, int64_t cols, uint64_t stream) : floats(rows, cols, 1, stream), halves(floats.mat()) {
    for (int64_t r = 0; r < rows; ++r) round_to_bf16(floats.mat().row(r), floats.mat().row(r), cols);
  }
  Guarded floats;
  Halves halves;
};

TEST(Numbers, AreRoundedToTheNearestTiesToEven) {
  for_each_target([] {
    for (const int64_t n : kWidths) {
      Guarded x(2, n, 1, 1);
      const float special[] = {1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -HUGE_VALF, 3.4e38f, NAN, 0x1p-127f, -0.0f};
      for (int64_t c = 0; c < n; ++c) x.mat()(1, c) = special[c % 7];
      Halves(x.mat()).expect_rounded(x.mat());
    }
  });
}

TEST(Numbers, InProducts) {
  struct Size {
    int64_t m, n, k;
  };
  for (const Bf16Path path : {Bf16Path::kTiles, Bf16Path::kPairs, Bf16Path::kRounded}) {
    if (!has_bf16_path(path)) continue;
    SCOPED_TRACE(name_of(path));
    for (const Size& z : {Size{1, 16, 1}, {17, 33, 20}, {50, 70, 100}, {130, 40, 600}}) {
      for (const Form form : {Form::kNT, Form::kNN, Form::kTN}) {
        const bool transposed = form == Form::kTN, turned = form == Form::kNT;
        Both a(transposed ? z.k : z.m, transposed ? z.m : z.k, 1), b(turned ? z.n : z.k, turned ? z.k : z.n, 2);
        Guarded want(z.m, z.n, 1, 3), got = want;
        const auto multiply = [&](ConstNumberMat x, ConstNumberMat y, Mat c) {
          multiply_bf16(test_context(), {form, x, y, c, z.m, z.n, z.k, true}, path);
        };
        const ConstNumberMat floats_b = b.floats.mat(), halves_b = b.halves.mat();
        multiply(a.floats.mat(), floats_b, want.mat());
        multiply(a.halves.mat(), transposed ? halves_b : floats_b, got.mat());
        expect_equal(got.mat(), want.mat());
      }
    }
  }
}

TEST(Numbers, InGradientsByGroups) {
  const RowGroup groups[] = {{20, 0}, {21, 1}, {90, 0}};
  Context context(2);
  context.set_precision(Precision::kBf16);
  Both dy(90, 35, 1), x(90, 50, 2);
  Guarded want(35, 50, 1, 3), got = want;
  gemm_tn(context, dy.floats.mat(), x.floats.mat(), want.mat(), RowGroups{groups});
  gemm_tn(context, dy.halves.mat(), x.halves.mat(), got.mat(), RowGroups{groups});
  expect_equal(got.mat(), want.mat());
}

TEST(Numbers, InNorms) {
  for_each_target([] {
    for (const int64_t n : kWidths) {
      Both x(3, n, 1);
      Guarded dy(3, n, 1, 3), want_dx(3, n, 1, 4), got_dx = want_dx, want(3, n, 1, 5), w(2, n, 1, 6);
      const auto row = [&](Guarded& m, int64_t r) { return std::span(m.mat().row(r), static_cast<size_t>(n)); };
      const Norm norm{.weight = row(w, 0), .bias = row(w, 1)};
      std::vector<float> mean(3), rstd(3), want_dw(static_cast<size_t>(n)), got_dw = want_dw;
      const NormInput floats{x.floats.mat(), {mean, rstd}}, halves{x.halves.mat(), {mean, rstd}};
      norm_forward(test_context(), norm, floats.x, want.mat(), floats.stats);
      Halves got(3, n);
      norm_forward(test_context(), norm, halves.x, got.mat(), halves.stats);
      got.expect_rounded(want.mat());
      norm_backward(test_context(), norm, dy.mat(), floats, want_dx.mat());
      norm_backward(test_context(), norm, dy.mat(), halves, got_dx.mat());
      expect_equal(got_dx.mat(), want_dx.mat());
      norm_backward_weights(test_context(), dy.mat(), floats, {want_dw, {}});
      norm_backward_weights(test_context(), dy.mat(), halves, {got_dw, {}});
      EXPECT_EQ(got_dw, want_dw);
    }
  });
}

TEST(Numbers, InActivations) {
  for_each_target([] {
    for (const auto& [name, kind] : kActivations) {
      for (const int64_t n : kWidths) {
        const int64_t inputs = n * activation_inputs(kind);
        Both pre(3, inputs, 1);
        Guarded d_act(3, n, 1, 2), bias(1, inputs, 1, 3), want(3, n, 1, 4), want_d(3, inputs, 1, 5);
        const ActivationStep step{kind, nullptr, {.rate = 0.3f, .key = 4}};
        Halves act(3, n), d_pre(3, inputs), copy(3, inputs);
        activation_forward(test_context(), step, pre.floats.mat(), want.mat());
        activation_forward(test_context(), step, pre.halves.mat(), act.mat());
        act.expect_rounded(want.mat());
        activation_backward(test_context(), step, pre.floats.mat(), d_act.mat(), want_d.mat());
        activation_backward(test_context(), step, pre.halves.mat(), d_act.mat(), d_pre.mat());
        d_pre.expect_rounded(want_d.mat());
        // Forward, of floats and their bias: what is kept is rounded, what it is computed from is not.
        const ActivationStep first{kind, bias.mat().data, {}};
        Guarded wide(3, inputs, 1, 6), again = wide;
        activation_forward(test_context(), first, again.mat(), want.mat());
        activation_forward(test_context(), first, wide.mat(), act.mat(), copy.mat());
        act.expect_rounded(want.mat());
        copy.expect_rounded(again.mat());
      }
    }
  });
}

TEST(Numbers, InBiasesLimitsAndSums) {
  for_each_target([] {
    for (const int64_t n : kWidths) {
      Both y(4, n, 1), d(4, n, 2);
      Guarded x(4, n, 1, 3), bias(1, n, 1, 4), want = x;
      Halves out(4, n);
      add_bias(test_context(), x.mat(), bias.mat().data, want.mat());
      add_bias(test_context(), x.mat(), bias.mat().data, out.mat());
      out.expect_rounded(want.mat());
      std::vector<float> want_sums(static_cast<size_t>(n)), got_sums = want_sums;
      column_sums(test_context(), y.floats.mat(), want_sums);
      column_sums(test_context(), y.halves.mat(), got_sums);
      EXPECT_EQ(got_sums, want_sums);
      // A limit that rounds down: what it cut off is found all the same.
      const float limit = 0.5f + 0x1p-10f;
      clip(test_context(), x.mat(), limit);
      Halves clipped(x.mat());
      clip_backward(test_context(), clipped.mat(), limit, d.halves.mat());
      for (int64_t r = 0; r < 4; ++r) {
        for (int64_t c = 0; c < n; ++c)
          ASSERT_EQ(d.halves(r, c), std::abs(clipped(r, c)) < 0.5f ? d.floats.mat()(r, c) : 0.0f);
      }
    }
  });
}

// Queries, keys and values side by side, as a layer keeps them.
TEST(Numbers, InAttention) {
  for (const bool interleaved : {false, true}) {
    for (const int64_t queries : {1, 17, 130}) {
      Fixture f({.shape = {.sequences = 2, .queries = queries, .heads = 2, .head_dim = 20},
                 .bias = Kind::kLinear,
                 .rotary_pairs = 7,
                 .interleaved = interleaved});
      const int64_t D = 20;
      round_to_bf16(f.qkv.data(), f.qkv.data(), std::ssize(f.qkv));
      const std::vector<float> d_out = random_floats(f.n * f.width, 5);
      Halves qkv(ConstMat(f.qkv.data(), f.n, 3 * f.width)), out(f.n, f.width), d_qkv(f.n, 3 * f.width);
      const auto part = [&](Halves& x, int64_t i) {
        return heads_of(x.mat().cols_from(i * f.width, f.width), queries, D);
      };
      f.forward(test_context());
      std::vector<float> lse(f.lse.size());
      append_keys(test_context(), {part(qkv, 1), part(qkv, 2), queries, f.position}, f.options.rotation, f.store);
      attention_forward(test_context(), f.c.shape, f.options, {part(qkv, 0), f.position, part(out, 0), lse, f.visited},
                        f.store);
      EXPECT_EQ(lse, f.lse);
      out.expect_rounded(ConstMat(f.out.data(), f.n, f.width));
      round_to_bf16(f.out.data(), f.out.data(), std::ssize(f.out));
      f.backward(test_context(), d_out);
      const std::vector<float> d_bias = f.d_bias;
      std::ranges::fill(f.d_bias, 0.0f);
      attention_backward(test_context(), f.c.shape, f.options,
                         {part(qkv, 0), part(qkv, 1), part(qkv, 2), queries, f.position, part(out, 0), lse, f.visited},
                         {.d_out = heads_of(ConstMat(d_out.data(), f.n, f.width), queries, D),
                          .d_q = part(d_qkv, 0),
                          .d_k = part(d_qkv, 1),
                          .d_v = part(d_qkv, 2),
                          .d_bias = {f.d_bias.data(), 2, queries}});
      d_qkv.expect_rounded(ConstMat(f.d_qkv.data(), f.n, 3 * f.width));
      EXPECT_EQ(f.d_bias, d_bias);
    }
  }
}

}  // namespace
}  // namespace longshot
