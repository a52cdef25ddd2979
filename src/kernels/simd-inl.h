// Vector helpers shared by the kernels. Per-target code: included once per target by each kernel's .cc.
#if defined(LONGSHOT_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LONGSHOT_SIMD_INL_H_
#undef LONGSHOT_SIMD_INL_H_
#else
#define LONGSHOT_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/numbers.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::ScalableTag<float>;
using D1 = hn::CappedTag<float, 1>;
using Vec = hn::Vec<D32>;

// Rounded to bf16. Half of the last place kept is added, less one unit where that place is even; what stands below is cut off.
// Infinities stay, and so do NaNs, which have the bit set that the sum could carry away.
template <class D>
HWY_INLINE hn::Vec<D> round_vec(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x), odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto up = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto nan = hn::Or(bits, hn::Set(du, 0x00400000u));
  const auto number = hn::Eq(x, x);
  const auto rounded =
      hn::BitCast(d, hn::And(hn::IfThenElse(hn::RebindMask(du, number), up, nan), hn::Set(du, 0xffff0000u)));
  const auto tiny = hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-126f));
  return hn::IfThenElse(tiny, hn::BitCast(d, hn::And(bits, hn::Set(du, 0x80000000u))), rounded);
}

// Numbers of either kind as vectors of floats.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const uint16_t* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> half;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(half, from))));
}
template <class D>
HWY_INLINE void store(hn::Vec<D> x, D d, float* to) {
  hn::StoreU(x, d, to);
}
template <class D>
HWY_INLINE void store(hn::Vec<D> x, D d, uint16_t* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> half;
  hn::StoreU(hn::TruncateTo(half, hn::ShiftRight<16>(hn::BitCast(du, round_vec(d, x)))), half, to);
}
template <class T>
HWY_INLINE float number(const T* from) {
  return hn::GetLane(load(D1(), from));
}
template <class T>
HWY_INLINE void set_number(T* to, float x) {
  store(hn::Set(D1(), x), D1(), to);
}
// f(float*) or f(uint16_t*), f(BasicMat<float>) or f(BasicMat<uint16_t>)
template <class F, class H, class Function>
HWY_INLINE void with_kind(BasicNumbers<F, H> x, Function&& f) {
  x.halves ? f(x.halves) : f(x.floats);
}
template <class F, class H, class Function>
HWY_INLINE void with_kind(BasicNumberMat<F, H> x, Function&& f) {
  x.is_bf16() ? f(BasicMat<H>(x.data.halves, x.rows, x.cols, x.stride)) : f(x.floats());
}

// e^x for x <= 88, to about 1 ulp; exactly 0 below -87.33 and for -inf.
//   x = n ln 2 + r, |r| <= ln 2 / 2;   e^r = 1 + r + r^2 P(r);   e^x = 2^n e^r
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_vec(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V low = hn::Set(d, -87.33654f);
  const auto underflow = hn::Lt(x, low);
  const V clamped = hn::Max(x, low);
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::MulAdd(r, hn::Set(d, 1.9875691500e-4f), hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  return hn::IfThenZeroElse(underflow, hn::Mul(p, hn::BitCast(d, exponent)));
}

// 1 / (1 + e^-x) and tanh x, through e^-|x| so that nothing overflows.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_vec(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = exp_vec(d, hn::Neg(hn::Abs(x)));
  const V small = hn::Div(e, hn::Add(one, e));  // of -|x|
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, hn::Sub(one, small));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_vec(D d, V x) {
  return hn::MulSub(hn::Set(d, 2.0f), sigmoid_vec(d, hn::Add(x, x)), hn::Set(d, 1.0f));
}

// P(x) = (1 + erf(x / sqrt(2))) / 2, the share of a normal distribution below x; relative error (12 + 5 z^2) 2^-24.
//   P(-a) = erfc(z) / 2,  z = a / sqrt(2);   erfc(z) = t e^(-z^2 + R(t)),  t = 1 / (1 + z / 2)
// R is the polynomial that Chebyshev's nodes give for ln(erfc(z) / t) + z^2, z <= 13.4, to 7.2e-8; beyond, e^(-z^2) is 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_share_vec(D d, V x) {
  const V z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f));
  const V t = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(z, hn::Set(d, 0.5f), hn::Set(d, 1.0f)));
  V r = hn::MulAdd(t, hn::Set(d, 0.168774462f), hn::Set(d, -0.808053953f));
  r = hn::MulAdd(r, t, hn::Set(d, 1.44920059f));
  r = hn::MulAdd(r, t, hn::Set(d, -1.07517791f));
  r = hn::MulAdd(r, t, hn::Set(d, 0.22355675f));
  r = hn::MulAdd(r, t, hn::Set(d, -0.154485951f));
  r = hn::MulAdd(r, t, hn::Set(d, 0.0854402825f));
  r = hn::MulAdd(r, t, hn::Set(d, 0.376492888f));
  r = hn::MulAdd(r, t, hn::Set(d, 0.999752867f));
  r = hn::MulAdd(r, t, hn::Set(d, -1.26549996f));
  const V tail = hn::Mul(hn::Mul(hn::Set(d, 0.5f), t), exp_vec(d, hn::NegMulAdd(z, z, r)));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
}

// Dropout factors of columns c, c + 1, ..: 0 or `scale`, a function of (row_key, column) alone. A factor is 0 where
// the hash (murmur3's 32-bit finaliser) is below the threshold.
template <class D>
HWY_INLINE hn::Vec<D> dropout_vec(D d, uint32_t row_key, uint32_t column, uint32_t threshold, float scale) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  auto h = hn::Xor(hn::Mul(hn::Iota(du, column), hn::Set(du, 0x9e3779b1u)), hn::Set(du, row_key));
  h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), hn::Set(du, 0x85ebca6bu));
  h = hn::Mul(hn::Xor(h, hn::ShiftRight<13>(h)), hn::Set(du, 0xc2b2ae35u));
  h = hn::Xor(h, hn::ShiftRight<16>(h));
  const auto least = static_cast<int32_t>(threshold >> 1);
  const auto keep = hn::Gt(hn::BitCast(di, hn::ShiftRight<1>(h)), hn::Set(di, least - 1));
  return hn::IfThenElseZero(hn::RebindMask(d, keep), hn::Set(d, scale));
}

// f(d, column) on whole vectors, then lane by lane with a one-lane tag: never reads or writes past n.
template <class F>
HWY_INLINE void for_columns(int64_t n, F&& f) {
  const D32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) f(d, c);
  for (; c < n; ++c) f(D1(), c);
}

// A sum over columns, fed by for_columns.
struct ColumnSum {
  Vec wide;
  float narrow = 0;
  HWY_INLINE ColumnSum() : wide(hn::Zero(D32())) {}
  template <class D>
  HWY_INLINE void add(D, hn::Vec<D> v) {
    if constexpr (std::is_same_v<D, D32>)
      wide = hn::Add(wide, v);
    else
      narrow += hn::GetLane(v);
  }
  HWY_INLINE float total() const { return hn::GetLane(hn::SumOfLanes(D32(), wide)) + narrow; }
};

struct ColumnMax {
  Vec wide;
  float narrow = -HUGE_VALF;
  HWY_INLINE ColumnMax() : wide(hn::Set(D32(), -HUGE_VALF)) {}
  template <class D>
  HWY_INLINE void add(D, hn::Vec<D> v) {
    if constexpr (std::is_same_v<D, D32>)
      wide = hn::Max(wide, v);
    else
      narrow = HWY_MAX(narrow, hn::GetLane(v));
  }
  HWY_INLINE float total() const { return HWY_MAX(hn::GetLane(hn::MaxOfLanes(D32(), wide)), narrow); }
};

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();
#endif
