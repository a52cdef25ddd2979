// Operations on the rows of whole matrices. Threads share out rows, or columns where rows are summed, so that the order
// of sums does not depend on them. What is a NumberMat may be bf16: it is rounded where it is written.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "base/choice.h"
#include "base/context.h"
#include "base/groups.h"
#include "base/view.h"
#include "kernels/numbers.h"

namespace longshot {

// Factors 0 or 1 / (1 - rate), a function of (key, row, column): nothing is stored for the backward pass.
struct Dropout {
  float rate = 0;
  uint64_t key = 0;
  int64_t first_row = 0;          // of the matrix at hand, in the whole
  const int32_t* rows = nullptr;  // where its rows are anywhere: of each, from first_row on
  int64_t row(int64_t r) const { return first_row + (rows ? rows[r] : r); }
  Dropout block(int64_t first) const {
    return rows ? Dropout{rate, key, first_row, rows + first} : Dropout{rate, key, first_row + first};
  }
};

// The output of a branch, before it joins the residual stream: drop(y + bias).
struct Branch {
  ConstMat y;
  const float* bias = nullptr;  // null: none
  Dropout drop;
};
// out = x + drop(y + bias). out may be x.
void add_residual(Context& context, ConstMat x, const Branch& branch, Mat out);
// out = drop(x). out may be x.
void drop_rows(Context& context, ConstMat x, const Dropout& drop, Mat out);
// out[r] = x[r] + bias (null: none). out may be x.
void add_bias(Context& context, ConstMat x, const float* bias, NumberMat out);
// copy = x, where it is bf16.
void keep(Context& context, ConstMat x, NumberMat copy);
// x = min(max(x, -limit), limit)
void clip(Context& context, Mat x, float limit);
// dy = 0 where clip() left y at its limit
void clip_backward(Context& context, ConstNumberMat y, float limit, NumberMat dy);
// sums[c] += sum_r x[r][c];  by groups of rows where there are several
void column_sums(Context& context, ConstNumberMat x, std::span<float> sums, const RowGroups& groups = {});

enum class Activation { kRelu, kGelu, kGeluExact, kSwiglu };
constexpr Choice<Activation> kActivations[] = {{"relu", Activation::kRelu},
                                               {"gelu", Activation::kGelu},
                                               {"gelu-exact", Activation::kGeluExact},
                                               {"swiglu", Activation::kSwiglu}};
// Columns of `pre` per column of `act`.
constexpr int64_t activation_inputs(Activation kind) { return kind == Activation::kSwiglu ? 2 : 1; }
// pre += bias (null: none, as it must be where pre is bf16); act = drop(f(pre)):
//   relu  max(0, x)      gelu  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//   gelu-exact  x P(x),  P(x) = (1 + erf(x / sqrt(2))) / 2
//   swiglu  pre holds [gate, up], twice as wide as act: gate / (1 + e^-gate) * up
struct ActivationStep {
  Activation kind;
  const float* bias = nullptr;
  Dropout drop;
};
// .. and copy = pre, where it is bf16.
void activation_forward(Context& context, const ActivationStep& f, NumberMat pre, NumberMat act, NumberMat copy = {});
// d_pre from d_act; `pre` holds its bias already. d_pre may be d_act where the widths agree.
void activation_backward(Context& context, const ActivationStep& f, ConstNumberMat pre, ConstMat d_act,
                         NumberMat d_pre);

// loss[r] = log sum_c e^x[r][c] - x[r][target]. With a scale, x becomes (softmax(x) - one_hot(target)) * scale.
// A negative target scores nothing: loss 0, gradient 0.
void cross_entropy(Context& context, Mat x, std::span<const int32_t> targets, std::span<float> losses,
                   std::optional<float> gradient_scale);
// x[r] = x[r] - log sum_c e^x[r][c]
void log_softmax(Context& context, Mat x);

}  // namespace longshot
