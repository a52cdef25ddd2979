#include "kernels/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/simd-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "kernels/split_rows.h"
#include "kernels/update.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

template <class X, class Y>
void norm_rows(const Norm& norm, BasicMat<const X> x, BasicMat<Y> y, float* mean, float* rstd) {
  const auto n = static_cast<float>(x.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const X* in = x.row(r);
    Y* out = y.row(r);
    float m = 0;
    if (!norm.rms) {
      ColumnSum sum;
      for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR { sum.add(d, load(d, in + c)); });
      m = sum.total() / n;
    }
    ColumnSum squares;
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto v = hn::Sub(load(d, in + c), hn::Set(d, m));
      squares.add(d, hn::Mul(v, v));
    });
    const float s = 1.0f / std::sqrt(squares.total() / n + norm.eps);
    const float* weight = norm.weight.data();
    const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto xhat = hn::Mul(hn::Sub(load(d, in + c), hn::Set(d, m)), hn::Set(d, s));
      const auto b = bias ? hn::LoadU(d, bias + c) : hn::Zero(d);
      store(hn::MulAdd(hn::LoadU(d, weight + c), xhat, b), d, out + c);
    });
    mean[r] = m;
    rstd[r] = s;
  }
}

void NormForward(const Norm& norm, ConstNumberMat x, NumberMat y, float* mean, float* rstd) {
  with_kind(x,
            [&](auto in) HWY_ATTR { with_kind(y, [&](auto out) HWY_ATTR { norm_rows(norm, in, out, mean, rstd); }); });
}

template <class X>
void norm_backward_rows(const Norm& norm, ConstMat dy, BasicMat<const X> x, const NormStats& stats, Mat dx) {
  const auto n = static_cast<float>(x.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const X* in = x.row(r);
    const float *g_in = dy.row(r), *weight = norm.weight.data();
    float* out = dx.row(r);
    const float m = stats.mean[static_cast<size_t>(r)], s = stats.rstd[static_cast<size_t>(r)];
    ColumnSum sum_g, sum_gx;
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto g = hn::Mul(hn::LoadU(d, weight + c), hn::LoadU(d, g_in + c));
      const auto xhat = hn::Mul(hn::Sub(load(d, in + c), hn::Set(d, m)), hn::Set(d, s));
      sum_g.add(d, g);
      sum_gx.add(d, hn::Mul(g, xhat));
    });
    const float mean_g = norm.rms ? 0.0f : sum_g.total() / n, mean_gx = sum_gx.total() / n;
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto g = hn::Mul(hn::LoadU(d, weight + c), hn::LoadU(d, g_in + c));
      const auto xhat = hn::Mul(hn::Sub(load(d, in + c), hn::Set(d, m)), hn::Set(d, s));
      const auto inner = hn::NegMulAdd(xhat, hn::Set(d, mean_gx), hn::Sub(g, hn::Set(d, mean_g)));
      hn::StoreU(hn::MulAdd(hn::Set(d, s), inner, hn::LoadU(d, out + c)), d, out + c);
    });
  }
}

void NormBackward(const Norm& norm, ConstMat dy, const NormInput& input, Mat dx) {
  with_kind(input.x, [&](auto in) HWY_ATTR { norm_backward_rows(norm, dy, in, input.stats, dx); });
}

template <class X>
void norm_weights_rows(ConstMat dy, BasicMat<const X> x, const NormStats& stats, const NormGradient& gradient) {
  for (int64_t r = 0; r < dy.rows; ++r) {
    const X* in = x.row(r);
    const float* g_in = dy.row(r);
    float* dw = gradient.weight.data();
    float* db = gradient.bias.empty() ? nullptr : gradient.bias.data();
    const float m = stats.mean[static_cast<size_t>(r)], s = stats.rstd[static_cast<size_t>(r)];
    for_columns(dy.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto g = hn::LoadU(d, g_in + c);
      const auto xhat = hn::Mul(hn::Sub(load(d, in + c), hn::Set(d, m)), hn::Set(d, s));
      hn::StoreU(hn::MulAdd(g, xhat, hn::LoadU(d, dw + c)), d, dw + c);
      if (db) hn::StoreU(hn::Add(g, hn::LoadU(d, db + c)), d, db + c);
    });
  }
}

void NormBackwardWeights(ConstMat dy, const NormInput& input, const NormGradient& gradient) {
  with_kind(input.x, [&](auto in) HWY_ATTR { norm_weights_rows(dy, in, input.stats, gradient); });
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);
HWY_EXPORT(NormBackwardWeights);

namespace {

void add_to(std::span<const float> from, std::span<float> to) { add_floats(from.data(), to.data(), std::ssize(to)); }

// Rows from r on.
NormInput rows_of(const NormInput& input, int64_t r, int64_t n) {
  const auto at = static_cast<size_t>(r);
  return {input.x.rows_from(r, n), {input.stats.mean.subspan(at), input.stats.rstd.subspan(at)}};
}
NormGradient columns_of(const NormGradient& g, int64_t first, int64_t count) {
  const auto columns = [&](std::span<float> x) { return x.empty() ? x : part(x, first, count); };
  return {columns(g.weight), columns(g.bias)};
}

}  // namespace

void norm_forward(Context& context, const Norm& norm, ConstNumberMat x, NumberMat y, NormStats stats) {
  split_rows(context, x.rows, [&](int64_t r, int64_t n) {
    HWY_DYNAMIC_DISPATCH(NormForward)
    (norm, x.rows_from(r, n), y.rows_from(r, n), stats.mean.data() + r, stats.rstd.data() + r);
  });
}

void norm_backward(Context& context, const Norm& norm, ConstMat dy, const NormInput& input, Mat dx) {
  split_rows(context, dy.rows, [&](int64_t r, int64_t n) {
    HWY_DYNAMIC_DISPATCH(NormBackward)(norm, dy.rows_from(r, n), rows_of(input, r, n), dx.rows_from(r, n));
  });
}

void norm_backward_weights(Context& context, ConstMat dy, const NormInput& input, const NormGradient& gradient,
                           const RowGroups& groups) {
  const int64_t cols = dy.cols;
  const auto rows = [&](int64_t r, int64_t n, const NormGradient& to, int64_t first, int64_t last) {
    NormInput part = rows_of(input, r, n);
    part.x = part.x.cols_from(first, last - first);
    HWY_DYNAMIC_DISPATCH(NormBackwardWeights)
    (dy.rows_from(r, n).cols_from(first, last - first), part, columns_of(to, first, last - first));
  };
  if (groups.plain()) {
    return context.ranges(cols, kColumnGrain,
                          [&](int64_t first, int64_t last) { rows(0, dy.rows, gradient, first, last); });
  }
  const std::span<float> sums = context.scratch(2 * groups.depth() * cols);  // [depth, weight and bias, C]
  const auto sum = [&](int i) {
    return NormGradient{part(sums, 2 * i * cols, cols),
                        part(sums, (2 * i + 1) * cols, gradient.bias.empty() ? 0 : cols)};
  };
  context.ranges(cols, kColumnGrain, [&](int64_t first, int64_t last) {
    const auto columns = [&](const NormGradient& g) { return columns_of(g, first, last - first); };
    const auto add = [&](const NormGradient& from, const NormGradient& to) {
      add_to(columns(from).weight, columns(to).weight);
      add_to(columns(from).bias, columns(to).bias);
    };
    const auto leaf = [&](int64_t r, int64_t n, int i) {
      std::ranges::fill(columns(sum(i)).weight, 0.0f);
      std::ranges::fill(columns(sum(i)).bias, 0.0f);
      rows(r, n, sum(i), first, last);
    };
    sum_by_groups(groups, leaf, [&](int into, int from) { add(sum(from), sum(into)); });
    add(sum(0), gradient);
  });
}

}  // namespace longshot
#endif  // HWY_ONCE
