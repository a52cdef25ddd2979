// Stored matrices: what they stand for, and products with them, on every instruction set. A product has the bits of the product
// of floats with the floats that are stood for; int8 has a rule of its own.
#include "kernels/panels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "context.h"
#include "formats/dtype.h"
#include "kernels/bf16.h"
#include "kernels/few_rows.h"
#include "kernels/gather.h"
#include "kernels/gemm.h"
#include "kernels/gemm_steps.h"
#include "kernels/product.h"
#include "kernels/support.h"

namespace longshot {
namespace {

constexpr WeightType kExact[] = {WeightType::kF32, WeightType::kBf16, WeightType::kMappedF16, WeightType::kMappedBf16};
constexpr WeightType kTypes[] = {WeightType::kF32, WeightType::kBf16, WeightType::kInt8, WeightType::kMappedF16,
                                 WeightType::kMappedBf16};

const char* type_name(WeightType type) {
  if (type == WeightType::kMappedF16) return "mapped f16";
  return type == WeightType::kMappedBf16 ? "mapped bf16" : name_of(kWeightTypes, type);
}

class Stored {
 public:
  Stored(ConstMat w, WeightType type) : memory_(stored_bytes(type, w.rows, w.cols) + kAlign) {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    auto* begin = memory_.data() + (kAlign - at % kAlign) % kAlign;
    if (is_mapped(type)) {
      begin = memory_.data() + memory_.size() - stored_bytes(type, w.rows, w.cols);  // nothing may be read behind
      map(w, type, begin);
    } else {
      finite = store_panels(w, type, begin);
    }
    panels = {type, w.rows, w.cols, begin};
  }
  Panels panels;
  bool finite = true;
  Weight weight() const { return {.stored = panels}; }

 private:
  static void map(ConstMat w, WeightType type, std::byte* to) {
    for (int64_t r = 0; r < w.rows; ++r) {
      for (int64_t c = 0; c < w.cols; ++c, to += sizeof(uint16_t)) {
        const uint16_t bits = type == WeightType::kMappedF16 ? float_to_half(w(r, c)) : float_to_bfloat(w(r, c));
        std::memcpy(to, &bits, sizeof bits);
      }
    }
  }

  static constexpr size_t kAlign = 64;
  std::vector<std::byte> memory_;
};

// The rule, written down once more: what a row x[n] stands for.
float nearest_bf16(float x) {
  if (std::abs(x) < std::numeric_limits<float>::min()) return std::copysign(0.0f, x);
  int exponent = 0;
  const double fraction = std::frexp(double{x}, &exponent);  // 8 bits of it are kept
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8));
}

std::vector<float> stood_for(const float* x, int64_t n, WeightType type) {
  std::vector<float> w(x, x + n);
  for (float& v : w) {
    if (type == WeightType::kBf16 || type == WeightType::kMappedBf16) v = nearest_bf16(v);
    if (type == WeightType::kMappedF16) v = half_to_float(float_to_half(v));
  }
  for (int64_t first = 0; type == WeightType::kInt8 && first < n; first += 64) {
    const int64_t end = std::min<int64_t>(first + 64, n);
    float most = 0;
    for (int64_t i = first; i < end; ++i) most = std::max(most, std::abs(x[i]));
    const float s = most / 127;
    for (int64_t i = first; i < end; ++i)
      w[static_cast<size_t>(i)] = s == 0 ? 0 : s * static_cast<float>(std::lrint(x[i] / s));
  }
  return w;
}

// The same matrix in rows of floats.
std::vector<float> stood_for(ConstMat w, WeightType type) {
  std::vector<float> all;
  for (int64_t r = 0; r < w.rows; ++r) {
    const std::vector<float> row = stood_for(w.row(r), w.cols, type);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

struct Sizes {
  int64_t out, in;
};
// Panels have 16 outputs; inputs go by 2, 32 and 64, and in steps of at most 384 or 512 whose ends are odd here and there.
constexpr Sizes kSizes[] = {{1, 1},   {15, 2},   {16, 31},  {17, 33},   {33, 63},    {64, 64},
                            {80, 65}, {100, 97}, {47, 777}, {129, 513}, {1009, 385}, {31, 1155}};

void expect_same_bits(ConstMat a, ConstMat b) {
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < a.cols; ++c)
      ASSERT_EQ(std::bit_cast<uint32_t>(a(r, c)), std::bit_cast<uint32_t>(b(r, c))) << r << ", " << c;
  }
}

TEST(Panels, StandForTheNumbersOfTheRule) {
  for (const WeightType type : kTypes) {
    for (const Sizes& size : kSizes) {
      SCOPED_TRACE(testing::Message() << type_name(type) << " " << size.out << " x " << size.in);
      Guarded w(size.out, size.in, 1, 1);
      const std::vector<float> expected = stood_for(w.mat(), type);
      for_each_target([&] {
        const Stored stored(w.mat(), type);
        EXPECT_TRUE(stored.finite);
        Guarded rows(size.out, size.in, 1, 2);
        for (int64_t r = 0; r < size.out; ++r) expand_row(stored.panels, r, 1, rows.mat().row(r));
        expect_same_bits(rows.mat(), {expected.data(), size.out, size.in});
        rows.expect_guards_intact();
      });
      if (HasFatalFailure()) return;
    }
  }
}

// Halves between two numbers go to the even one.
TEST(Panels, RoundToTheNearestEven) {
  const float step = 0x1p-7f;  // of bf16 above 1
  const std::vector<float> x = {1, 1 + step / 2, 1 + 1.5f * step, 1 + 0.51f * step, -1 - step / 2, 0x1p-127f};
  const Stored bf16(ConstMat(x.data(), 1, 6), WeightType::kBf16);
  std::vector<float> w(6);
  expand_row(bf16.panels, 0, 1, w.data());
  EXPECT_EQ(w, (std::vector<float>{1, 1, 1 + 2 * step, 1 + step, -1, 0}));
  const std::vector<float> y = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.51f, -127};  // a scale of 1
  const Stored int8(ConstMat(y.data(), 1, 8), WeightType::kInt8);
  w.resize(8);
  expand_row(int8.panels, 0, 1, w.data());
  EXPECT_EQ(w, (std::vector<float>{127, 0, 2, 2, 0, -2, 1, -127}));
}

// bf16: at most 2^-8 of the number. int8: at most half a step, max / 254 over its 64 inputs, up to the rounding of s q.
TEST(Panels, ErrorsAreBounded) {
  Guarded w(33, 200, 1, 7);
  const std::vector<float> half = stood_for(w.mat(), WeightType::kBf16), byte = stood_for(w.mat(), WeightType::kInt8);
  for (int64_t r = 0; r < 33; ++r) {
    for (int64_t c = 0; c < 200; ++c) {
      float most = 0;
      for (int64_t i = c / 64 * 64; i < std::min<int64_t>(c / 64 * 64 + 64, 200); ++i)
        most = std::max(most, std::abs(w.mat()(r, i)));
      const float x = w.mat()(r, c);
      const auto at = static_cast<size_t>(r * 200 + c);
      ASSERT_LE(std::abs(half[at] - x), std::ldexp(std::abs(x), -8));
      ASSERT_LE(std::abs(byte[at] - x), most / 254 * (1 + 1e-5f));
    }
  }
}

TEST(Panels, TakeAHalfAndAQuarterOfTheMemory) {
  const double floats = 4.0 * 4096 * 1024;
  EXPECT_EQ(static_cast<double>(stored_bytes(WeightType::kF32, 4096, 1024)), floats);
  EXPECT_EQ(static_cast<double>(stored_bytes(WeightType::kBf16, 4096, 1024)), floats / 2);
  EXPECT_EQ(static_cast<double>(stored_bytes(WeightType::kInt8, 4096, 1024)), floats / 4 * 68 / 64);
}

// Numbers that are not finite, or become so, are found; zeros and numbers near them are not mistaken for such.
TEST(Panels, HostileNumbers) {
  const float huge = std::numeric_limits<float>::max(), tiny = std::numeric_limits<float>::denorm_min();
  const auto finite = [](float x, WeightType type) {
    std::vector<float> row(70, 0.5f);
    row[66] = x;
    return Stored(ConstMat(row.data(), 1, 70), type).finite;
  };
  for (const WeightType type : {WeightType::kBf16, WeightType::kInt8}) {
    for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) EXPECT_FALSE(finite(bad, type));
    for (const float good : {0.0f, tiny, -tiny, 1e-38f, 1e38f}) EXPECT_TRUE(finite(good, type));
  }
  EXPECT_FALSE(finite(huge, WeightType::kBf16));  // rounds to infinity
  const std::vector<float> small(80, tiny * 50);
  const Stored stored(ConstMat(small.data(), 1, 80), WeightType::kInt8);
  std::vector<float> w(80, 1.0f);
  expand_row(stored.panels, 0, 1, w.data());
  for (const float x : w) EXPECT_EQ(x, 0);
  const std::vector<float> large(80, huge);
  if (const Stored most(ConstMat(large.data(), 1, 80), WeightType::kInt8); most.finite) {
    expand_row(most.panels, 0, 1, w.data());
    for (const float x : w) EXPECT_TRUE(std::isfinite(x));
  }
}

// x W^T and, for few rows, its own kernel: against the product of floats, bit for bit, with 1, 2, 7, 16, 33 rows and more, one
// thread and several.
void check_products(WeightType type, Precision precision) {
  for (const Sizes& size : kSizes) {
    Guarded w(size.out, size.in, 3, 2);
    const std::vector<float> floats = stood_for(w.mat(), type);
    Guarded x(60, size.in, 1, 1);
    for_each_target([&] {
      const Stored stored(w.mat(), type);
      for (const int threads : {1, 3}) {
        Context context(threads);
        context.set_precision(precision);
        for (const int64_t rows : {1, 2, 3, 5, 7, 12, 13, 16, 24, 33, 60}) {
          SCOPED_TRACE(testing::Message() << type_name(type) << " " << rows << " x " << size.out << " x " << size.in
                                          << ", threads " << threads);
          Guarded y(rows, size.out, 1, 3), expected(rows, size.out, 1, 4);
          product(context, x.mat().rows_from(0, rows), stored.weight(), y.mat());
          gemm_nt(context, x.mat().rows_from(0, rows), {floats.data(), size.out, size.in}, expected.mat());
          expect_same_bits(y.mat(), expected.mat());
          y.expect_guards_intact();
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    });
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(StoredProduct, HasTheBitsOfTheProductOfFloats) {
  for (const WeightType type : kExact) check_products(type, Precision::kF32);
}

TEST(StoredProduct, HasThemOfOperandsInBf16) {
  for (const WeightType type : kExact) check_products(type, Precision::kBf16);
}

// Numbers of `most` at most, and their scale, over 64 of a row.
struct Fixed {
  float scale;
  std::vector<int64_t> numbers;
};
Fixed fixed(const float* x, int64_t n, float most) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  Fixed f{largest / most, {}};
  for (int64_t i = 0; i < n; ++i) f.numbers.push_back(f.scale == 0 ? 0 : std::lrint(x[i] / f.scale));
  return f;
}

// The rule of kernels/int8_product.h as a plain loop, in double over the blocks.
struct Int8Sum {
  double sum = 0, terms = 0;
};
Int8Sum int8_sum(const float* x, const float* w, int64_t n) {
  Int8Sum all;
  for (int64_t first = 0; first < n; first += 64) {
    const int64_t count = std::min<int64_t>(64, n - first);
    const Fixed p = fixed(x + first, count, 32767), q = fixed(w + first, count, 127);
    int64_t sum = 0;
    for (size_t i = 0; i < p.numbers.size(); ++i) sum += p.numbers[i] * q.numbers[i];
    const double term = double{p.scale} * q.scale * static_cast<double>(sum);
    all.sum += term, all.terms += std::abs(term);
  }
  return all;
}

TEST(Int8Product, IsTheSumOfExactSums) {
  for (const Sizes& size : kSizes) {
    SCOPED_TRACE(testing::Message() << size.out << " x " << size.in);
    Guarded w(size.out, size.in, 3, 2), x(7, size.in, 1, 1);
    const Stored stored(w.mat(), WeightType::kInt8);
    for_each_target([&] {
      Guarded y(7, size.out, 1, 3);
      product(test_context(), x.mat(), stored.weight(), y.mat());
      for (int64_t r = 0; r < 7; ++r) {
        for (int64_t j = 0; j < size.out; ++j) {
          const Int8Sum expected = int8_sum(x.mat().row(r), w.mat().row(j), size.in);
          ASSERT_NEAR(y.mat()(r, j), expected.sum, 1e-6 * expected.terms) << r << ", " << j;
        }
      }
      y.expect_guards_intact();
    });
    if (HasFatalFailure()) return;
  }
}

// Whatever stands beside it, however many threads there are, and whatever the precision of other products.
TEST(Int8Product, ARowHasItsOwnBits) {
  constexpr int64_t kRows = 100, kOut = 83, kIn = 777;
  Guarded w(kOut, kIn, 3, 2), x(kRows, kIn, 1, 1);
  const Stored stored(w.mat(), WeightType::kInt8);
  for_each_target([&] {
    Guarded expected(kRows, kOut, 1, 3);
    product(test_context(), x.mat(), stored.weight(), expected.mat());
    for (const int threads : {1, 2, 5}) {
      Context context(threads);
      context.set_precision(threads == 2 ? Precision::kBf16 : Precision::kF32);
      for (const int64_t rows : {1, 2, 3, 7, 16, 33}) {
        const int64_t first = kRows - rows - 5;
        Guarded some(rows, kOut, 1, 4);
        product(context, x.mat().rows_from(first, rows), stored.weight(), some.mat());
        expect_same_bits(some.mat(), expected.mat().rows_from(first, rows));
        some.expect_guards_intact();
      }
    }
  });
}

// The largest numbers there can be do not overflow the inner sums; a row with a number that is not finite is NaN, its
// neighbours are not.
TEST(Int8Product, HostileNumbers) {
  const std::vector<float> ones(64 * 16, 1.0f);
  const Stored stored(ConstMat(ones.data(), 16, 64), WeightType::kInt8);
  std::vector<float> x(3 * 64, 3.0f);
  x[64 + 5] = NAN;
  x[128 + 63] = 0x1p-140f;
  for_each_target([&] {
    std::vector<float> y(3 * 16);
    product(test_context(), ConstMat(x.data(), 3, 64), stored.weight(), {y.data(), 3, 16});
    for (size_t j = 0; j < 16; ++j) {
      EXPECT_NEAR(y[j], 192, 1e-3);
      EXPECT_TRUE(std::isnan(y[16 + j]));
      EXPECT_NEAR(y[32 + j], 189, 1e-3);
    }
    const std::vector<float> infinite(64, HUGE_VALF), tiny(64, 0x1p-140f);
    product(test_context(), ConstMat(infinite.data(), 1, 64), stored.weight(), {y.data(), 1, 16});
    EXPECT_TRUE(std::isnan(y[0]));
    product(test_context(), ConstMat(tiny.data(), 1, 64), stored.weight(), {y.data(), 1, 16});
    EXPECT_EQ(y[0], 0);
  });
}

// The kernels behind it, each in every way the CPU has.
TEST(StoredProduct, OfFewRowsInEveryWayOfBf16) {
  constexpr int64_t kOut = 83, kIn = 201;
  Guarded w(kOut, kIn, 3, 2), x(24, kIn, 1, 1);
  const Stored stored(w.mat(), WeightType::kBf16);
  for (const Bf16Path path : {Bf16Path::kTiles, Bf16Path::kPairs, Bf16Path::kRounded}) {
    if (!has_bf16_path(path)) continue;
    for (const int64_t rows : {1, 2, 3, 6, 12, 17, 24}) {
      if (rows > few_rows()) continue;
      SCOPED_TRACE(testing::Message() << name_of(path) << " " << rows);
      Guarded y(rows, kOut, 1, 3), expected(rows, kOut, 1, 4);
      few_rows_bf16(test_context(), x.mat().rows_from(0, rows), stored.panels, y.mat(), path);
      multiply_bf16(test_context(),
                    {Form::kNT, x.mat().rows_from(0, rows), w.mat(), expected.mat(), rows, kOut, kIn, false}, path);
      expect_same_bits(y.mat(), expected.mat());
      y.expect_guards_intact();
    }
  }
}

// int8: inputs are off by at most 2^-16 of the largest of 64, some 4 of these numbers.
TEST(StoredProduct, AgainstThePlainLoop) {
  constexpr int64_t kRows = 5, kOut = 37, kIn = 150;
  Guarded w(kOut, kIn, 3, 2), x(kRows, kIn, 1, 1);
  for (const WeightType type : kTypes) {
    const double tolerance = type == WeightType::kInt8 ? 1e-4 : 1e-6;
    const std::vector<float> floats = stood_for(w.mat(), type);
    const Stored stored(w.mat(), type);
    Guarded y(kRows, kOut, 1, 3);
    product(test_context(), x.mat(), stored.weight(), y.mat());
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < kOut; ++j) {
        double sum = 0, terms = 0;
        for (int64_t k = 0; k < kIn; ++k) {
          const double term = double{x.mat()(r, k)} * floats[static_cast<size_t>(j * kIn + k)];
          sum += term, terms += std::abs(term);
        }
        ASSERT_NEAR(y.mat()(r, j), sum, tolerance * terms);
      }
    }
  }
}

TEST(StoredProduct, Transposed) {
  for (const WeightType type : kTypes) {
    for (const Sizes& size : kSizes) {
      Guarded w(size.out, size.in, 3, 2), x(7, size.out, 1, 1);
      const std::vector<float> floats = stood_for(w.mat(), type);
      for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
        Context context(2);
        context.set_precision(precision);
        const Stored stored(w.mat(), type);
        Guarded y(7, size.in, 1, 3), expected(7, size.in, 1, 4);
        product_transposed(context, x.mat(), stored.weight(), y.mat());
        gemm_nn(context, x.mat(), {floats.data(), size.out, size.in}, expected.mat());
        expect_same_bits(y.mat(), expected.mat());
        y.expect_guards_intact();
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(StoredProduct, OfSomeOutputs) {
  Guarded w(100, 70, 3, 2), x(3, 70, 1, 1);
  for (const WeightType type : kTypes) {
    const Stored stored(w.mat(), type);
    Guarded all(3, 100, 1, 3);
    product(test_context(), x.mat(), stored.weight(), all.mat());
    for (int64_t first = 0; first < 100; first += 8) {
      ASSERT_EQ(stored.weight().can_begin_at(first), first % (type == WeightType::kInt8 ? 64
                                                              : is_mapped(type)         ? 1
                                                                                        : 16) ==
                                                         0);
      if (!stored.weight().can_begin_at(first)) continue;
      Guarded some(3, 30, 1, 4);
      const int64_t count = std::min<int64_t>(30, 100 - first);
      product(test_context(), x.mat(), stored.weight().outputs(first, count), some.mat().cols_from(0, count));
      expect_same_bits(some.mat().cols_from(0, count), all.mat().cols_from(first, count));
    }
  }
}

TEST(StoredProduct, RowsArePicked) {
  Guarded w(50, 70, 3, 2), out(4, 70, 1, 3);
  const std::vector<int32_t> rows = {49, 0, 17, 17};
  for (const WeightType type : kTypes) {
    const std::vector<float> floats = stood_for(w.mat(), type);
    const Stored stored(w.mat(), type);
    gather(test_context(), stored.weight(), rows, 2.5f, out.mat());
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t c = 0; c < 70; ++c)
        ASSERT_EQ(out.mat()(i, c), 2.5f * floats[static_cast<size_t>(rows[static_cast<size_t>(i)] * 70 + c)]);
    }
    out.expect_guards_intact();
  }
}

}  // namespace
}  // namespace longshot
