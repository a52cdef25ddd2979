#include "kernels/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rowwise.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
#include "kernels/simd-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "kernels/update.h"

HWY_BEFORE_NAMESPACE();
namespace longshot {
namespace HWY_NAMESPACE {

// The dropout factors of one row; all 1 where the rate is 0.
class RowDropout {
 public:
  RowDropout(const Dropout& drop, int64_t row)
      : key_(static_cast<uint32_t>(mix64(drop.key ^ static_cast<uint64_t>(drop.row(row))))),
        threshold_(static_cast<uint32_t>(std::min(drop.rate * 4294967296.0, 4294967295.0))),
        scale_(1.0f / (1.0f - drop.rate)) {}
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, int64_t column, hn::Vec<D> v) const {
    if (threshold_ == 0) return v;
    return hn::Mul(v, dropout_vec(d, key_, static_cast<uint32_t>(column), threshold_, scale_));
  }

 private:
  uint32_t key_, threshold_;
  float scale_;
};

void NormForward(const Norm& norm, ConstMat x, Mat y, float* mean, float* rstd) {
  const auto n = static_cast<float>(x.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* in = x.row(r);
    float* out = y.row(r);
    float m = 0;
    if (!norm.rms) {
      ColumnSum sum;
      for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR { sum.add(d, hn::LoadU(d, in + c)); });
      m = sum.total() / n;
    }
    ColumnSum squares;
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto v = hn::Sub(hn::LoadU(d, in + c), hn::Set(d, m));
      squares.add(d, hn::Mul(v, v));
    });
    const float s = 1.0f / std::sqrt(squares.total() / n + norm.eps);
    const float* weight = norm.weight.data();
    const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto xhat = hn::Mul(hn::Sub(hn::LoadU(d, in + c), hn::Set(d, m)), hn::Set(d, s));
      const auto b = bias ? hn::LoadU(d, bias + c) : hn::Zero(d);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, weight + c), xhat, b), d, out + c);
    });
    mean[r] = m;
    rstd[r] = s;
  }
}

void NormBackward(const Norm& norm, ConstMat dy, ConstMat x, const float* mean, const float* rstd, Mat dx) {
  const auto n = static_cast<float>(x.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const float *in = x.row(r), *g_in = dy.row(r), *weight = norm.weight.data();
    float* out = dx.row(r);
    const float m = mean[r], s = rstd[r];
    ColumnSum sum_g, sum_gx;
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto g = hn::Mul(hn::LoadU(d, weight + c), hn::LoadU(d, g_in + c));
      const auto xhat = hn::Mul(hn::Sub(hn::LoadU(d, in + c), hn::Set(d, m)), hn::Set(d, s));
      sum_g.add(d, g);
      sum_gx.add(d, hn::Mul(g, xhat));
    });
    const float mean_g = norm.rms ? 0.0f : sum_g.total() / n, mean_gx = sum_gx.total() / n;
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto g = hn::Mul(hn::LoadU(d, weight + c), hn::LoadU(d, g_in + c));
      const auto xhat = hn::Mul(hn::Sub(hn::LoadU(d, in + c), hn::Set(d, m)), hn::Set(d, s));
      const auto inner = hn::NegMulAdd(xhat, hn::Set(d, mean_gx), hn::Sub(g, hn::Set(d, mean_g)));
      hn::StoreU(hn::MulAdd(hn::Set(d, s), inner, hn::LoadU(d, out + c)), d, out + c);
    });
  }
}

// Columns [first, last).
void NormBackwardWeights(ConstMat dy, const NormInput& input, const NormGradient& gradient, int64_t first,
                         int64_t last) {
  for (int64_t r = 0; r < dy.rows; ++r) {
    const float *in = input.x.row(r) + first, *g_in = dy.row(r) + first;
    float* dw = gradient.weight.data() + first;
    float* db = gradient.bias.empty() ? nullptr : gradient.bias.data() + first;
    const float m = input.stats.mean[static_cast<size_t>(r)], s = input.stats.rstd[static_cast<size_t>(r)];
    for_columns(last - first, [&](auto d, int64_t c) HWY_ATTR {
      const auto g = hn::LoadU(d, g_in + c);
      const auto xhat = hn::Mul(hn::Sub(hn::LoadU(d, in + c), hn::Set(d, m)), hn::Set(d, s));
      hn::StoreU(hn::MulAdd(g, xhat, hn::LoadU(d, dw + c)), d, dw + c);
      if (db) hn::StoreU(hn::Add(g, hn::LoadU(d, db + c)), d, db + c);
    });
  }
}

void AddResidual(ConstMat x, const Branch& branch, Mat out) {
  const float* bias = branch.bias;
  for (int64_t r = 0; r < x.rows; ++r) {
    const float *xr = x.row(r), *yr = branch.y.row(r);
    float* o = out.row(r);
    const RowDropout factors(branch.drop, r);
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      auto v = hn::LoadU(d, yr + c);
      if (bias) v = hn::Add(v, hn::LoadU(d, bias + c));
      hn::StoreU(hn::Add(hn::LoadU(d, xr + c), factors.apply(d, c, v)), d, o + c);
    });
  }
}

void DropRows(ConstMat x, const Dropout& drop, Mat out) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* xr = x.row(r);
    float* o = out.row(r);
    const RowDropout factors(drop, r);
    for_columns(x.cols,
                [&](auto d, int64_t c) HWY_ATTR { hn::StoreU(factors.apply(d, c, hn::LoadU(d, xr + c)), d, o + c); });
  }
}

void AddBias(Mat x, const float* bias) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = x.row(r);
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, row + c), hn::LoadU(d, bias + c)), d, row + c);
    });
  }
}

void Clip(Mat x, float limit) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = x.row(r);
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto most = hn::Set(d, limit);
      hn::StoreU(hn::Min(most, hn::Max(hn::Neg(most), hn::LoadU(d, row + c))), d, row + c);
    });
  }
}

void ClipBackward(ConstMat y, float limit, Mat dy) {
  for (int64_t r = 0; r < y.rows; ++r) {
    const float* row = y.row(r);
    float* g = dy.row(r);
    for_columns(y.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto inside = hn::Lt(hn::Abs(hn::LoadU(d, row + c)), hn::Set(d, limit));
      hn::StoreU(hn::IfThenElseZero(inside, hn::LoadU(d, g + c)), d, g + c);
    });
  }
}

void ColumnSums(ConstMat x, int64_t first, int64_t last, float* sums) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.row(r) + first;
    float* to = sums + first;
    for_columns(last - first, [&](auto d, int64_t c) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, to + c), hn::LoadU(d, row + c)), d, to + c);
    });
  }
}

constexpr float kGeluA = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluB = 0.044715f;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  const V inner = hn::MulAdd(hn::Mul(hn::Set(d, kGeluB), hn::Mul(x, x)), x, x);
  return tanh_vec(d, hn::Mul(hn::Set(d, kGeluA), inner));
}

void ActivationForward(const ActivationStep& f, Mat pre, Mat act) {
  if (f.bias) AddBias(pre, f.bias);
  for (int64_t r = 0; r < pre.rows; ++r) {
    const float* x_row = pre.row(r);
    const float* up_row = x_row + act.cols;
    float* out = act.row(r);
    const RowDropout factors(f.drop, r);
    switch (f.kind) {
      case Activation::kRelu:
        for_columns(act.cols, [&](auto d, int64_t c) HWY_ATTR {
          hn::StoreU(factors.apply(d, c, hn::Max(hn::LoadU(d, x_row + c), hn::Zero(d))), d, out + c);
        });
        break;
      case Activation::kGelu:
        for_columns(act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto x = hn::LoadU(d, x_row + c);
          const auto half = hn::Mul(x, hn::Set(d, 0.5f));
          hn::StoreU(factors.apply(d, c, hn::MulAdd(half, gelu_tanh(d, x), half)), d, out + c);
        });
        break;
      case Activation::kGeluExact:
        for_columns(act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto x = hn::LoadU(d, x_row + c);
          hn::StoreU(factors.apply(d, c, hn::Mul(x, normal_share_vec(d, x))), d, out + c);
        });
        break;
      case Activation::kSwiglu:
        for_columns(act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto gate = hn::LoadU(d, x_row + c);
          const auto silu = hn::Mul(gate, sigmoid_vec(d, gate));
          hn::StoreU(factors.apply(d, c, hn::Mul(silu, hn::LoadU(d, up_row + c))), d, out + c);
        });
        break;
    }
  }
}

void ActivationBackward(const ActivationStep& step, ConstMat pre, ConstMat d_act, Mat d_pre) {
  for (int64_t r = 0; r < pre.rows; ++r) {
    const float *x_row = pre.row(r), *g_row = d_act.row(r);
    const float* up_row = x_row + d_act.cols;
    float* out = d_pre.row(r);
    float* d_up = out + d_act.cols;
    const RowDropout factors(step.drop, r);
    switch (step.kind) {
      case Activation::kRelu:
        for_columns(d_act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto g = factors.apply(d, c, hn::LoadU(d, g_row + c));
          hn::StoreU(hn::IfThenElseZero(hn::Gt(hn::LoadU(d, x_row + c), hn::Zero(d)), g), d, out + c);
        });
        break;
      case Activation::kGelu:
        // f' = (1 + t) / 2 + x/2 (1 - t^2) sqrt(2/pi) (1 + 3 * 0.044715 x^2),  t = tanh(..)
        for_columns(d_act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto x = hn::LoadU(d, x_row + c);
          const auto t = gelu_tanh(d, x);
          const auto half = hn::Set(d, 0.5f), one = hn::Set(d, 1.0f);
          const auto inner = hn::Mul(hn::Set(d, kGeluA), hn::MulAdd(hn::Set(d, 3 * kGeluB), hn::Mul(x, x), one));
          const auto slope = hn::Mul(hn::Mul(hn::Mul(half, x), hn::NegMulAdd(t, t, one)), inner);
          const auto f = hn::Add(hn::MulAdd(half, t, half), slope);
          hn::StoreU(hn::Mul(factors.apply(d, c, hn::LoadU(d, g_row + c)), f), d, out + c);
        });
        break;
      case Activation::kGeluExact:
        // f' = P(x) + x e^(-x^2 / 2) / sqrt(2 pi)
        for_columns(d_act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto x = hn::LoadU(d, x_row + c);
          const auto density = exp_vec(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
          const auto slope = hn::MulAdd(hn::Mul(x, hn::Set(d, 0.39894228f)), density, normal_share_vec(d, x));
          hn::StoreU(hn::Mul(factors.apply(d, c, hn::LoadU(d, g_row + c)), slope), d, out + c);
        });
        break;
      case Activation::kSwiglu:
        // silu' = s + gate s (1 - s),  s = sigmoid(gate)
        for_columns(d_act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto gate = hn::LoadU(d, x_row + c), up = hn::LoadU(d, up_row + c);
          const auto g = factors.apply(d, c, hn::LoadU(d, g_row + c));
          const auto s = sigmoid_vec(d, gate);
          const auto slope = hn::MulAdd(hn::Mul(gate, s), hn::Sub(hn::Set(d, 1.0f), s), s);
          hn::StoreU(hn::Mul(g, hn::Mul(slope, up)), d, out + c);
          hn::StoreU(hn::Mul(g, hn::Mul(gate, s)), d, d_up + c);
        });
        break;
    }
  }
}

void CrossEntropy(Mat x, const int32_t* targets, float* loss, std::optional<float> scale) {
  const bool gradient = scale.has_value();
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = x.row(r);
    const int32_t target = targets[r];
    if (target < 0) {
      loss[r] = 0;
      if (gradient) std::fill_n(row, x.cols, 0.0f);
      continue;
    }
    ColumnMax largest;
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR { largest.add(d, hn::LoadU(d, row + c)); });
    const float shift = largest.total(), at_target = row[target];
    ColumnSum sum;
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto e = exp_vec(d, hn::Sub(hn::LoadU(d, row + c), hn::Set(d, shift)));
      sum.add(d, e);
      if (gradient) hn::StoreU(e, d, row + c);
    });
    const float z = sum.total();
    loss[r] = std::log(z) + shift - at_target;
    if (gradient) {
      const float factor = *scale / z;
      for_columns(x.cols, [&](auto d, int64_t c)
                              HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, row + c), hn::Set(d, factor)), d, row + c); });
      row[target] -= *scale;
    }
  }
}

float LargestImpl(const float* x, int64_t n) {
  ColumnMax largest;
  for_columns(n, [&](auto d, int64_t c) HWY_ATTR { largest.add(d, hn::LoadU(d, x + c)); });
  return largest.total();
}

// sum e^(x - shift), of floats over 256 columns
double ExpSumImpl(const float* x, int64_t n, float shift) {
  constexpr int64_t kTogether = 256;
  double all = 0;
  for (int64_t first = 0; first < n; first += kTogether) {
    ColumnSum sum;
    for_columns(std::min(kTogether, n - first), [&](auto d, int64_t c) HWY_ATTR {
      sum.add(d, exp_vec(d, hn::Sub(hn::LoadU(d, x + first + c), hn::Set(d, shift))));
    });
    all += sum.total();
  }
  return all;
}

void SubtractImpl(float* x, int64_t n, float by) {
  for_columns(n,
              [&](auto d, int64_t c) HWY_ATTR { hn::StoreU(hn::Sub(hn::LoadU(d, x + c), hn::Set(d, by)), d, x + c); });
}

}  // namespace HWY_NAMESPACE
}  // namespace longshot
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longshot {

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);
HWY_EXPORT(NormBackwardWeights);
HWY_EXPORT(AddResidual);
HWY_EXPORT(DropRows);
HWY_EXPORT(AddBias);
HWY_EXPORT(Clip);
HWY_EXPORT(ClipBackward);
HWY_EXPORT(ColumnSums);
HWY_EXPORT(ActivationForward);
HWY_EXPORT(ActivationBackward);
HWY_EXPORT(CrossEntropy);
HWY_EXPORT(LargestImpl);
HWY_EXPORT(ExpSumImpl);
HWY_EXPORT(SubtractImpl);

namespace {

constexpr int64_t kRowGrain = 16, kColumnGrain = 64;  // least work of a thread

void add_to(std::span<const float> from, std::span<float> to) { add_floats(from.data(), to.data(), std::ssize(to)); }

// f(first, count) over the rows of a matrix.
template <class F>
void split_rows(Context& context, int64_t rows, F&& f) {
  context.ranges(rows, kRowGrain, [&](int64_t begin, int64_t end) { f(begin, end - begin); });
}

}  // namespace

void norm_forward(Context& context, const Norm& norm, ConstMat x, Mat y, NormStats stats) {
  split_rows(context, x.rows, [&](int64_t r, int64_t n) {
    HWY_DYNAMIC_DISPATCH(NormForward)
    (norm, x.rows_from(r, n), y.rows_from(r, n), stats.mean.data() + r, stats.rstd.data() + r);
  });
}
void norm_backward(Context& context, const Norm& norm, ConstMat dy, const NormInput& input, Mat dx) {
  split_rows(context, dy.rows, [&](int64_t r, int64_t n) {
    HWY_DYNAMIC_DISPATCH(NormBackward)
    (norm, dy.rows_from(r, n), input.x.rows_from(r, n), input.stats.mean.data() + r, input.stats.rstd.data() + r,
     dx.rows_from(r, n));
  });
}
void norm_backward_weights(Context& context, ConstMat dy, const NormInput& input, const NormGradient& gradient,
                           const RowGroups& groups) {
  const int64_t cols = dy.cols;
  const auto rows = [&](int64_t r, int64_t n, const NormGradient& to, int64_t first, int64_t last) {
    const auto at = static_cast<size_t>(r);
    const NormInput part{input.x.rows_from(r, n), {input.stats.mean.subspan(at), input.stats.rstd.subspan(at)}};
    HWY_DYNAMIC_DISPATCH(NormBackwardWeights)(dy.rows_from(r, n), part, to, first, last);
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
    const auto columns = [&](std::span<float> x) { return x.empty() ? x : part(x, first, last - first); };
    const auto add = [&](const NormGradient& from, const NormGradient& to) {
      add_to(columns(from.weight), columns(to.weight));
      add_to(columns(from.bias), columns(to.bias));
    };
    const auto leaf = [&](int64_t r, int64_t n, int i) {
      std::ranges::fill(columns(sum(i).weight), 0.0f);
      std::ranges::fill(columns(sum(i).bias), 0.0f);
      rows(r, n, sum(i), first, last);
    };
    sum_by_groups(groups, leaf, [&](int into, int from) { add(sum(from), sum(into)); });
    add(sum(0), gradient);
  });
}
void add_residual(Context& context, ConstMat x, const Branch& branch, Mat out) {
  split_rows(context, x.rows, [&](int64_t r, int64_t n) {
    const Branch part{branch.y.rows_from(r, n), branch.bias, branch.drop.block(r)};
    HWY_DYNAMIC_DISPATCH(AddResidual)(x.rows_from(r, n), part, out.rows_from(r, n));
  });
}
void drop_rows(Context& context, ConstMat x, const Dropout& drop, Mat out) {
  split_rows(context, x.rows, [&](int64_t r, int64_t n) {
    HWY_DYNAMIC_DISPATCH(DropRows)(x.rows_from(r, n), drop.block(r), out.rows_from(r, n));
  });
}
void add_bias(Context& context, Mat x, const float* bias) {
  split_rows(context, x.rows, [&](int64_t r, int64_t n) { HWY_DYNAMIC_DISPATCH(AddBias)(x.rows_from(r, n), bias); });
}
void clip(Context& context, Mat x, float limit) {
  split_rows(context, x.rows, [&](int64_t r, int64_t n) { HWY_DYNAMIC_DISPATCH(Clip)(x.rows_from(r, n), limit); });
}
void clip_backward(Context& context, ConstMat y, float limit, Mat dy) {
  split_rows(context, y.rows, [&](int64_t r, int64_t n) {
    HWY_DYNAMIC_DISPATCH(ClipBackward)(y.rows_from(r, n), limit, dy.rows_from(r, n));
  });
}
void column_sums(Context& context, ConstMat x, std::span<float> sums, const RowGroups& groups) {
  const auto rows = [&](int64_t r, int64_t n, float* to, int64_t first, int64_t last) {
    HWY_DYNAMIC_DISPATCH(ColumnSums)(x.rows_from(r, n), first, last, to);
  };
  if (groups.plain()) {
    return context.ranges(x.cols, kColumnGrain,
                          [&](int64_t first, int64_t last) { rows(0, x.rows, sums.data(), first, last); });
  }
  const std::span<float> all = context.scratch(groups.depth() * x.cols);  // [depth, C]
  context.ranges(x.cols, kColumnGrain, [&](int64_t first, int64_t last) {
    const auto sum = [&](int i) { return part(all, i * x.cols + first, last - first); };
    const auto leaf = [&](int64_t r, int64_t n, int i) {
      std::ranges::fill(sum(i), 0.0f);
      rows(r, n, all.data() + i * x.cols, first, last);
    };
    sum_by_groups(groups, leaf, [&](int into, int from) { add_to(sum(from), sum(into)); });
    add_to(sum(0), part(sums, first, last - first));
  });
}
void activation_forward(Context& context, const ActivationStep& f, Mat pre, Mat act) {
  split_rows(context, pre.rows, [&](int64_t r, int64_t n) {
    const ActivationStep part{f.kind, f.bias, f.drop.block(r)};
    HWY_DYNAMIC_DISPATCH(ActivationForward)(part, pre.rows_from(r, n), act.rows_from(r, n));
  });
}
void activation_backward(Context& context, const ActivationStep& f, ConstMat pre, ConstMat d_act, Mat d_pre) {
  split_rows(context, pre.rows, [&](int64_t r, int64_t n) {
    const ActivationStep part{f.kind, f.bias, f.drop.block(r)};
    HWY_DYNAMIC_DISPATCH(ActivationBackward)(part, pre.rows_from(r, n), d_act.rows_from(r, n), d_pre.rows_from(r, n));
  });
}
void cross_entropy(Context& context, Mat x, std::span<const int32_t> targets, std::span<float> losses,
                   std::optional<float> gradient_scale) {
  const ZoneTimer timer(context, Zone::kCrossEntropy);
  split_rows(context, x.rows, [&](int64_t r, int64_t n) {
    HWY_DYNAMIC_DISPATCH(CrossEntropy)(x.rows_from(r, n), targets.data() + r, losses.data() + r, gradient_scale);
  });
}

// A row goes in pieces, since one row may be all there is and a vocabulary large: largest numbers and sums of pieces come
// together in order.
void log_softmax(Context& context, Mat x) {
  constexpr int64_t kPiece = 8192;
  const int64_t pieces = (x.cols + kPiece - 1) / kPiece;
  std::vector<double> parts(static_cast<size_t>(x.rows * pieces));
  const auto of_row = [&](int64_t r) { return part(std::span<double>(parts), r * pieces, pieces); };
  const auto for_pieces = [&](auto&& f) {
    context.tasks(x.rows * pieces, [&](int64_t i) {
      const int64_t column = i % pieces * kPiece;
      f(x.row(i / pieces) + column, std::min(kPiece, x.cols - column), i / pieces, parts[static_cast<size_t>(i)]);
    });
  };
  std::vector<float> shift(static_cast<size_t>(x.rows));
  for_pieces(
      [](const float* at, int64_t n, int64_t, double& found) { found = HWY_DYNAMIC_DISPATCH(LargestImpl)(at, n); });
  for (int64_t r = 0; r < x.rows; ++r)
    shift[static_cast<size_t>(r)] = static_cast<float>(*std::ranges::max_element(of_row(r)));
  for_pieces([&](const float* at, int64_t n, int64_t r, double& found) {
    found = HWY_DYNAMIC_DISPATCH(ExpSumImpl)(at, n, shift[static_cast<size_t>(r)]);
  });
  for (int64_t r = 0; r < x.rows; ++r) {
    double sum = 0;
    for (const double p : of_row(r)) sum += p;
    float& by = shift[static_cast<size_t>(r)];
    by = static_cast<float>(by + std::log(sum));
  }
  for_pieces([&](float* at, int64_t n, int64_t r, double&) {
    HWY_DYNAMIC_DISPATCH(SubtractImpl)(at, n, shift[static_cast<size_t>(r)]);
  });
}

}  // namespace longshot
#endif  // HWY_ONCE
