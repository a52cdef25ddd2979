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
#include "kernels/bf16.h"
#include "kernels/split_rows.h"
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

template <class Y>
void add_bias_rows(ConstMat x, const float* bias, BasicMat<Y> out) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.row(r);
    Y* to = out.row(r);
    for_columns(x.cols, [&](auto d, int64_t c) HWY_ATTR {
      auto v = hn::LoadU(d, row + c);
      if (bias) v = hn::Add(v, hn::LoadU(d, bias + c));
      store(v, d, to + c);
    });
  }
}

void AddBias(ConstMat x, const float* bias, NumberMat out) {
  with_kind(out, [&](auto to) HWY_ATTR { add_bias_rows(x, bias, to); });
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

template <class Y, class G>
void clip_backward_rows(BasicMat<const Y> y, float limit, BasicMat<G> dy) {
  for (int64_t r = 0; r < y.rows; ++r) {
    const Y* row = y.row(r);
    G* g = dy.row(r);
    for_columns(y.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto inside = hn::Lt(hn::Abs(load(d, row + c)), hn::Set(d, limit));
      store(hn::IfThenElseZero(inside, load(d, g + c)), d, g + c);
    });
  }
}

void ClipBackward(ConstNumberMat y, float limit, NumberMat dy) {
  with_kind(y, [&](auto row) HWY_ATTR { with_kind(dy, [&](auto g) HWY_ATTR { clip_backward_rows(row, limit, g); }); });
}

template <class X>
void column_sums_rows(BasicMat<const X> x, float* sums) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const X* row = x.row(r);
    for_columns(x.cols, [&](auto d, int64_t c)
                            HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, sums + c), load(d, row + c)), d, sums + c); });
  }
}

void ColumnSums(ConstNumberMat x, float* sums) {
  with_kind(x, [&](auto rows) HWY_ATTR { column_sums_rows(rows, sums); });
}

constexpr float kGeluA = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluB = 0.044715f;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  const V inner = hn::MulAdd(hn::Mul(hn::Set(d, kGeluB), hn::Mul(x, x)), x, x);
  return tanh_vec(d, hn::Mul(hn::Set(d, kGeluA), inner));
}

template <class X, class Y>
void activation_rows(const ActivationStep& f, BasicMat<X> pre, BasicMat<Y> act) {
  for (int64_t r = 0; r < pre.rows; ++r) {
    const X* x_row = pre.row(r);
    const X* up_row = x_row + act.cols;
    Y* out = act.row(r);
    const RowDropout factors(f.drop, r);
    switch (f.kind) {
      case Activation::kRelu:
        for_columns(act.cols, [&](auto d, int64_t c) HWY_ATTR {
          store(factors.apply(d, c, hn::Max(load(d, x_row + c), hn::Zero(d))), d, out + c);
        });
        break;
      case Activation::kGelu:
        for_columns(act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto x = load(d, x_row + c);
          const auto half = hn::Mul(x, hn::Set(d, 0.5f));
          store(factors.apply(d, c, hn::MulAdd(half, gelu_tanh(d, x), half)), d, out + c);
        });
        break;
      case Activation::kGeluExact:
        for_columns(act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto x = load(d, x_row + c);
          store(factors.apply(d, c, hn::Mul(x, normal_share_vec(d, x))), d, out + c);
        });
        break;
      case Activation::kSwiglu:
        for_columns(act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto gate = load(d, x_row + c);
          const auto silu = hn::Mul(gate, sigmoid_vec(d, gate));
          store(factors.apply(d, c, hn::Mul(silu, load(d, up_row + c))), d, out + c);
        });
        break;
    }
  }
}

void ActivationForward(const ActivationStep& f, NumberMat pre, NumberMat act, NumberMat copy) {
  for (int64_t r = 0; r < pre.rows; ++r) {
    const NumberMat row = pre.rows_from(r, 1);
    const ActivationStep step{f.kind, nullptr, f.drop.block(r)};
    if (f.bias) AddBias(row.floats(), f.bias, row);
    with_kind(row, [&](auto x) HWY_ATTR {
      with_kind(act.rows_from(r, 1), [&](auto y) HWY_ATTR { activation_rows(step, x, y); });
    });
    if (copy.is_bf16()) AddBias(row.floats(), nullptr, copy.rows_from(r, 1));
  }
}

template <class X, class Y>
void activation_backward_rows(const ActivationStep& step, BasicMat<const X> pre, ConstMat d_act, BasicMat<Y> d_pre) {
  for (int64_t r = 0; r < pre.rows; ++r) {
    const X* x_row = pre.row(r);
    const X* up_row = x_row + d_act.cols;
    const float* g_row = d_act.row(r);
    Y* out = d_pre.row(r);
    Y* d_up = out + d_act.cols;
    const RowDropout factors(step.drop, r);
    switch (step.kind) {
      case Activation::kRelu:
        for_columns(d_act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto g = factors.apply(d, c, load(d, g_row + c));
          store(hn::IfThenElseZero(hn::Gt(load(d, x_row + c), hn::Zero(d)), g), d, out + c);
        });
        break;
      case Activation::kGelu:
        // f' = (1 + t) / 2 + x/2 (1 - t^2) sqrt(2/pi) (1 + 3 * 0.044715 x^2),  t = tanh(..)
        for_columns(d_act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto x = load(d, x_row + c);
          const auto t = gelu_tanh(d, x);
          const auto half = hn::Set(d, 0.5f), one = hn::Set(d, 1.0f);
          const auto inner = hn::Mul(hn::Set(d, kGeluA), hn::MulAdd(hn::Set(d, 3 * kGeluB), hn::Mul(x, x), one));
          const auto slope = hn::Mul(hn::Mul(hn::Mul(half, x), hn::NegMulAdd(t, t, one)), inner);
          const auto f = hn::Add(hn::MulAdd(half, t, half), slope);
          store(hn::Mul(factors.apply(d, c, load(d, g_row + c)), f), d, out + c);
        });
        break;
      case Activation::kGeluExact:
        // f' = P(x) + x e^(-x^2 / 2) / sqrt(2 pi)
        for_columns(d_act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto x = load(d, x_row + c);
          const auto density = exp_vec(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
          const auto slope = hn::MulAdd(hn::Mul(x, hn::Set(d, 0.39894228f)), density, normal_share_vec(d, x));
          store(hn::Mul(factors.apply(d, c, load(d, g_row + c)), slope), d, out + c);
        });
        break;
      case Activation::kSwiglu:
        // silu' = s + gate s (1 - s),  s = sigmoid(gate)
        for_columns(d_act.cols, [&](auto d, int64_t c) HWY_ATTR {
          const auto gate = load(d, x_row + c), up = load(d, up_row + c);
          const auto g = factors.apply(d, c, load(d, g_row + c));
          const auto s = sigmoid_vec(d, gate);
          const auto slope = hn::MulAdd(hn::Mul(gate, s), hn::Sub(hn::Set(d, 1.0f), s), s);
          store(hn::Mul(g, hn::Mul(slope, up)), d, out + c);
          store(hn::Mul(g, hn::Mul(gate, s)), d, d_up + c);
        });
        break;
    }
  }
}

void ActivationBackward(const ActivationStep& f, ConstNumberMat pre, ConstMat d_act, NumberMat d_pre) {
  with_kind(pre, [&](auto x) HWY_ATTR {
    with_kind(d_pre, [&](auto d_x) HWY_ATTR { activation_backward_rows(f, x, d_act, d_x); });
  });
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

void add_to(std::span<const float> from, std::span<float> to) { add_floats(from.data(), to.data(), std::ssize(to)); }

}  // namespace

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
void add_bias(Context& context, ConstMat x, const float* bias, NumberMat out) {
  if (!bias && out.data.floats == x.data) return;
  split_rows(context, x.rows, [&](int64_t r, int64_t n) {
    HWY_DYNAMIC_DISPATCH(AddBias)(x.rows_from(r, n), bias, out.rows_from(r, n));
  });
}
void keep(Context& context, ConstMat x, NumberMat copy) {
  if (copy.is_bf16()) add_bias(context, x, nullptr, copy);
}
void clip(Context& context, Mat x, float limit) {
  split_rows(context, x.rows, [&](int64_t r, int64_t n) { HWY_DYNAMIC_DISPATCH(Clip)(x.rows_from(r, n), limit); });
}
void clip_backward(Context& context, ConstNumberMat y, float limit, NumberMat dy) {
  if (y.is_bf16()) round_to_bf16(&limit, &limit, 1);
  split_rows(context, y.rows, [&](int64_t r, int64_t n) {
    HWY_DYNAMIC_DISPATCH(ClipBackward)(y.rows_from(r, n), limit, dy.rows_from(r, n));
  });
}
void column_sums(Context& context, ConstNumberMat x, std::span<float> sums, const RowGroups& groups) {
  const auto rows = [&](int64_t r, int64_t n, float* to, int64_t first, int64_t last) {
    HWY_DYNAMIC_DISPATCH(ColumnSums)(x.rows_from(r, n).cols_from(first, last - first), to + first);
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
void activation_forward(Context& context, const ActivationStep& f, NumberMat pre, NumberMat act, NumberMat copy) {
  split_rows(context, pre.rows, [&](int64_t r, int64_t n) {
    const ActivationStep part{f.kind, f.bias, f.drop.block(r)};
    const NumberMat copied = copy.is_bf16() ? copy.rows_from(r, n) : copy;
    HWY_DYNAMIC_DISPATCH(ActivationForward)(part, pre.rows_from(r, n), act.rows_from(r, n), copied);
  });
}
void activation_backward(Context& context, const ActivationStep& f, ConstNumberMat pre, ConstMat d_act,
                         NumberMat d_pre) {
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
