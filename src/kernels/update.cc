#include "kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/update.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

void AdamWUpdate(const AdamW& o, const UpdateRange& r) {
  const float step = o.lr / o.correction1, root = 1.0f / o.correction2, keep = 1.0f - o.lr * r.decay;
  for_columns(r.count, [&](auto d, int64_t i) HWY_ATTR {
    const auto g = hn::Mul(hn::LoadU(d, r.grad + i), hn::Set(d, r.grad_scale));
    const auto m = hn::MulAdd(hn::LoadU(d, r.first + i), hn::Set(d, o.beta1), hn::Mul(g, hn::Set(d, 1 - o.beta1)));
    const auto v =
        hn::MulAdd(hn::LoadU(d, r.second + i), hn::Set(d, o.beta2), hn::Mul(hn::Mul(g, g), hn::Set(d, 1 - o.beta2)));
    const auto divisor = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, root))), hn::Set(d, o.eps));
    const auto w = hn::Mul(hn::LoadU(d, r.value + i), hn::Set(d, keep));
    hn::StoreU(hn::NegMulAdd(hn::Set(d, step), hn::Div(m, divisor), w), d, r.value + i);
    hn::StoreU(m, d, r.first + i);
    hn::StoreU(v, d, r.second + i);
    hn::StoreU(hn::Zero(d), d, r.grad + i);
  });
}

void NagUpdate(const Nag& o, const UpdateRange& r) {
  const float keep = 1.0f - o.lr * r.decay, mc = o.momentum * o.correction, mmc = o.momentum * mc;
  for_columns(r.count, [&](auto d, int64_t i) HWY_ATTR {
    const auto lr_g = hn::Mul(hn::LoadU(d, r.grad + i), hn::Set(d, r.grad_scale * o.lr));
    const auto v = hn::LoadU(d, r.first + i);
    auto w = hn::MulAdd(hn::LoadU(d, r.value + i), hn::Set(d, keep), hn::Mul(v, hn::Set(d, mmc)));
    w = hn::NegMulAdd(hn::Set(d, 1.0f + o.momentum), lr_g, w);
    hn::StoreU(w, d, r.value + i);
    hn::StoreU(hn::MulSub(v, hn::Set(d, mc), lr_g), d, r.first + i);
    hn::StoreU(hn::Zero(d), d, r.grad + i);
  });
}

void SgdUpdate(const Sgd& o, const UpdateRange& r) {
  for_columns(r.count, [&](auto d, int64_t i) HWY_ATTR {
    const auto w = hn::LoadU(d, r.value + i);
    const auto g = hn::MulAdd(w, hn::Set(d, r.decay), hn::Mul(hn::LoadU(d, r.grad + i), hn::Set(d, r.grad_scale)));
    const auto v = hn::MulAdd(hn::LoadU(d, r.first + i), hn::Set(d, o.momentum), g);
    hn::StoreU(hn::NegMulAdd(hn::Set(d, o.lr), v, w), d, r.value + i);
    hn::StoreU(v, d, r.first + i);
    hn::StoreU(hn::Zero(d), d, r.grad + i);
  });
}

void AddFloats(const float* from, float* to, int64_t n) {
  for_columns(n, [&](auto d, int64_t i)
                     HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i); });
}

void MoveFloats(float* from, float* to, int64_t n) {
  for_columns(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto sum = hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i));
    hn::StoreU(hn::Add(sum, hn::Zero(d)), d, to + i);
    hn::StoreU(hn::Zero(d), d, from + i);
  });
}

double SumOfSquares(const float* x, int64_t n) {
  double total = 0;
  constexpr int64_t kBlock = 4096;  // short enough for a float sum to be good
  for (int64_t first = 0; first < n; first += kBlock) {
    ColumnSum sum;
    const float* at = x + first;
    for_columns(HWY_MIN(kBlock, n - first), [&](auto d, int64_t i) HWY_ATTR {
      const auto v = hn::LoadU(d, at + i);
      sum.add(d, hn::Mul(v, v));
    });
    total += sum.total();
  }
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {

HWY_EXPORT(AdamWUpdate);
HWY_EXPORT(NagUpdate);
HWY_EXPORT(SgdUpdate);
HWY_EXPORT(AddFloats);
HWY_EXPORT(MoveFloats);
HWY_EXPORT(SumOfSquares);

void adamw_update(const AdamW& o, const UpdateRange& r) { HWY_DYNAMIC_DISPATCH(AdamWUpdate)(o, r); }
void nag_update(const Nag& o, const UpdateRange& r) { HWY_DYNAMIC_DISPATCH(NagUpdate)(o, r); }
void sgd_update(const Sgd& o, const UpdateRange& r) { HWY_DYNAMIC_DISPATCH(SgdUpdate)(o, r); }
void add_floats(const float* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(AddFloats)(from, to, n); }
void move_floats(float* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(MoveFloats)(from, to, n); }
double sum_of_squares(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumOfSquares)(x, n); }

}  // namespace longshot
#endif  // HWY_ONCE
