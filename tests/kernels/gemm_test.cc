// Matrix products against the plain loop: every form, around the edges of every block, on every instruction set, of floats
// and of numbers rounded to bf16 in every way the CPU has.
#include "kernels/gemm.h"

#include <cmath>
#include <functional>
#include <limits>

#include "context.h"
#include "kernels/bf16.h"
#include "kernels/gemm_steps.h"
#include "kernels/support.h"

namespace longshot {
namespace {

struct TestedForm {
  const char* name;
  void (*product)(Context&, ConstMat, ConstMat, Mat, bool);
  bool a_transposed, b_transposed;
};
constexpr TestedForm kForms[] = {
    {"nt", [](Context& on, ConstMat a, ConstMat b, Mat c, bool add) { gemm_nt(on, a, b, c, add); }, false, true},
    {"nn", [](Context& on, ConstMat a, ConstMat b, Mat c, bool add) { gemm_nn(on, a, b, c, add); }, false, false},
    {"tn", [](Context& on, ConstMat a, ConstMat b, Mat c, bool add) { gemm_tn(on, a, b, c, add); }, true, false}};

struct Sizes {
  int64_t m, n, k;
};

enum class Operands { kFloats, kBf16 };

void round(Guarded& x) {
  for (int64_t r = 0; r < x.mat().rows; ++r) round_to_bf16(x.mat().row(r), x.mat().row(r), x.mat().cols);
}

// a, b and what a b is, with the sum of absolute terms as a measure of rounding.
struct Case {
  Case(const TestedForm& f, const Sizes& z, Operands operands = Operands::kFloats)
      : form(f),
        size(z),
        a(f.a_transposed ? z.k : z.m, f.a_transposed ? z.m : z.k, 1, 1),
        b(f.b_transposed ? z.n : z.k, f.b_transposed ? z.k : z.n, 3, 2) {
    Guarded exact_a = a, exact_b = b;
    if (operands == Operands::kBf16) round(exact_a), round(exact_b);
    for (int64_t i = 0; i < z.m; ++i) {
      for (int64_t j = 0; j < z.n; ++j) {
        double sum = 0, size_of_terms = 0;
        for (int64_t t = 0; t < z.k; ++t) {
          const double term = static_cast<double>(f.a_transposed ? exact_a.mat()(t, i) : exact_a.mat()(i, t)) *
                              (f.b_transposed ? exact_b.mat()(j, t) : exact_b.mat()(t, j));
          sum += term, size_of_terms += std::abs(term);
        }
        sums.push_back(sum), sizes.push_back(size_of_terms);
      }
    }
  }

  using Multiply = std::function<void(Mat c, bool accumulate)>;
  void check(Context& context, bool accumulate) {
    check(accumulate, [&](Mat c, bool add) { form.product(context, a.mat(), b.mat(), c, add); });
  }
  void check(bool accumulate, const Multiply& multiply) {
    SCOPED_TRACE(testing::Message() << form.name << " " << size.m << " x " << size.n << " x " << size.k
                                    << (accumulate ? ", accumulated" : ""));
    Guarded c(size.m, size.n, 1, 3), before = c;
    multiply(c.mat(), accumulate);
    for (int64_t i = 0; i < size.m; ++i) {
      for (int64_t j = 0; j < size.n; ++j) {
        const auto at = static_cast<size_t>(i * size.n + j);
        const double start = accumulate ? before.mat()(i, j) : 0.0;
        ASSERT_NEAR(c.mat()(i, j), start + sums[at], 1e-6 * (std::abs(start) + sizes[at])) << i << ", " << j;
      }
    }
    c.expect_guards_intact();
  }

  const TestedForm& form;
  Sizes size;
  Guarded a, b;
  std::vector<double> sums, sizes;  // [m, n]
};

void check_everywhere(const std::vector<Sizes>& all) {
  for (const TestedForm& form : kForms) {
    for (const Sizes& size : all) {
      Case c(form, size);
      for_each_target([&] {
        for (const bool accumulate : {false, true}) c.check(test_context(), accumulate);
      });
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Register blocks have 3, 6 or 12 rows and one or two panels of 16 columns; threads take up to 48 rows.
TEST(Gemm, AwkwardSizes) {
  std::vector<Sizes> all;
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 23, 25, 47, 48, 49, 100}) {
    for (const int64_t n : {1, 7, 15, 16, 17, 32, 33, 100}) {
      for (const int64_t k : {0, 1, 7, 33}) all.push_back({m, n, k});
    }
  }
  check_everywhere(all);
}

// The inner dimension goes in equal steps of at most 384 or 512; as many columns are packed at once as 2^18 floats hold.
TEST(Gemm, AcrossTheStepsOfDepthAndOfPackedColumns) {
  check_everywhere({{25, 17, 383}, {25, 17, 384}, {25, 17, 385}, {25, 17, 511}, {25, 17, 512}, {25, 17, 513}});
  check_everywhere({{13, 33, 1025}, {5, 680, 385}, {5, 1007, 260}, {5, 1008, 260}, {5, 1009, 260}, {49, 2100, 300}});
}

// Tiles have 16 lanes and 32 of the inner dimension, which goes in steps of at most 512; threads take up to 128 rows.
TEST(Gemm, RoundedToBf16InEveryWay) {
  std::vector<Sizes> all = {{33, 40, 511}, {33, 40, 512}, {33, 40, 513}, {150, 1100, 70}, {20, 1030, 513}};
  for (const int64_t m : {1, 2, 15, 16, 17, 31, 32, 33, 48, 129}) {
    for (const int64_t n : {1, 15, 16, 17, 33, 64}) {
      for (const int64_t k : {1, 2, 31, 32, 33, 65}) all.push_back({m, n, k});
    }
  }
  for (const Bf16Path path : {Bf16Path::kTiles, Bf16Path::kPairs, Bf16Path::kRounded}) {
    if (!has_bf16_path(path)) continue;
    SCOPED_TRACE(name_of(path));
    for (int f = 0; f < 3; ++f) {
      for (const Sizes& size : all) {
        Case c(kForms[f], size, Operands::kBf16);
        for (const bool accumulate : {false, true}) {
          c.check(accumulate, [&](Mat to, bool add) {
            multiply_bf16(test_context(),
                          {static_cast<longshot::Form>(f), c.a.mat(), c.b.mat(), to, size.m, size.n, size.k, add},
                          path);
          });
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// The context says which numbers are multiplied.
TEST(Gemm, RoundsWhereTheContextSaysSo) {
  Case rounded(kForms[0], {20, 30, 40}, Operands::kBf16), exact(kForms[0], {20, 30, 40});
  Context context(2);
  exact.check(context, false);
  context.set_precision(Precision::kBf16);
  rounded.check(context, false);
}

TEST(Gemm, NothingToDo) {
  for (const TestedForm& form : kForms) {
    Case(form, {0, 5, 3}).check(test_context(), false);
    Case(form, {5, 0, 3}).check(test_context(), false);
  }
}

TEST(Gemm, ThreadsChangeNothing) {
  for (const TestedForm& form : kForms) {
    Case c(form, {150, 70, 90});
    std::vector<Guarded> results;
    for (const int threads : {1, 2, 5}) {
      Context context(threads);
      results.emplace_back(150, 70, 1, 3);
      form.product(context, c.a.mat(), c.b.mat(), results.back().mat(), false);
    }
    for (int64_t i = 0; i < 150; ++i) {
      for (int64_t j = 0; j < 70; ++j) {
        ASSERT_EQ(results[0].mat()(i, j), results[1].mat()(i, j));
        ASSERT_EQ(results[0].mat()(i, j), results[2].mat()(i, j));
      }
    }
  }
}

// Whatever stands beside it, and however many threads there are: a sequence gets the same numbers alone and in a batch.
void check_rows(Precision precision) {
  constexpr int64_t kRows = 100, kColumns = 83, kInner = 777;
  for (const TestedForm& f : {kForms[0], kForms[1]}) {
    Case whole(f, {kRows, kColumns, kInner});
    for_each_target([&] {
      Guarded expected(kRows, kColumns, 1, 3);
      Context all(2);
      all.set_precision(precision);
      f.product(all, whole.a.mat(), whole.b.mat(), expected.mat(), false);
      for (const int threads : {1, 2}) {
        Context context(threads);
        context.set_precision(precision);
        for (const int64_t rows : {1, 2, 7, 16, 33}) {
          const int64_t first = kRows - rows - 5;
          Guarded part(rows, kColumns, 1, 3);
          f.product(context, whole.a.mat().rows_from(first, rows), whole.b.mat(), part.mat(), false);
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < kColumns; ++j)
              ASSERT_EQ(part.mat()(i, j), expected.mat()(first + i, j))
                  << f.name << " " << rows << ": " << i << ", " << j;
          }
        }
      }
    });
  }
}

TEST(Gemm, ARowHasItsOwnBits) {
  check_rows(Precision::kF32);
  check_rows(Precision::kBf16);
}

// Huge numbers overflow to infinity and NaN spreads as in a plain sum; numbers too small to be normal may count as 0.
TEST(Gemm, HostileNumbers) {
  const float tiny = std::numeric_limits<float>::denorm_min() * 1000, huge = 3e38f;
  const std::vector<float> ones = {1, 1, 1, 1};
  const auto sum = [&](const std::vector<float>& row) {
    float c = -1;
    gemm_nt(test_context(), {row.data(), 1, 4}, {ones.data(), 1, 4}, {&c, 1, 1});
    return c;
  };
  for_each_target([&] {
    EXPECT_EQ(sum({huge, huge, 1, 1}), HUGE_VALF);
    EXPECT_EQ(sum({huge, -huge, 1, 2}), 3);
    EXPECT_LE(std::abs(sum({tiny, tiny, tiny, tiny})), 4 * tiny);
    EXPECT_TRUE(std::isnan(sum({1, NAN, 1, 1})));
  });
}

}  // namespace
}  // namespace longshot
