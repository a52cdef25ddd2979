#include "model/output.h"

#include <cassert>
#include <cmath>
#include <optional>

#include "kernels/gemm.h"
#include "kernels/rowwise.h"
#include "model/rows.h"

namespace longshot {
namespace {

// Large enough that a product with the [V, C] matrix is worth packing it, small enough to stay out of the way.
constexpr int64_t kChunkFloats = 16 << 20;

void cross_entropy_rows(Context& context, Mat x, const int32_t* targets, float* losses,
                        std::optional<float> gradient_scale) {
  const ZoneTimer timer(context, Zone::kCrossEntropy);
  parallel_rows(context, x.rows, [&](int64_t r, int64_t n) {
    cross_entropy(x.rows_from(r, n), targets + r, losses + r, gradient_scale.has_value(), gradient_scale.value_or(0));
  });
}

}  // namespace

int64_t LinearOutput::scratch_floats(int64_t rows) const {
  return std::min(rows, std::max<int64_t>(kChunkFloats / vocab_, 64)) * vocab_;
}

Mat LinearOutput::logits(std::span<float> scratch) const {
  return {scratch.data(), static_cast<int64_t>(scratch.size()) / vocab_, vocab_};
}

void LinearOutput::loss(Context& context, ConstMat hidden, std::span<const int32_t> targets, std::span<float> scratch,
                        std::span<float> losses) {
  const Mat whole = logits(scratch);
  for (int64_t first = 0; first < hidden.rows; first += whole.rows) {
    const Mat x = whole.rows_from(0, std::min(whole.rows, hidden.rows - first));
    gemm_nt(context, hidden.rows_from(first, x.rows), parameters_.value_mat(weight_), x);
    cross_entropy_rows(context, x, targets.data() + first, losses.data() + first, {});
  }
}

// logits = h W^T;  g = (softmax(logits) - one_hot) scale;  dh = g W;  dW += g^T h
void LinearOutput::loss_and_gradient(Context& context, ConstMat hidden, std::span<const int32_t> targets,
                                     std::span<float> scratch, std::span<float> losses, const Gradient& gradient) {
  const Mat weight = parameters_.value_mat(weight_), d_weight = parameters_.grad_mat(weight_), whole = logits(scratch);
  for (int64_t first = 0; first < hidden.rows; first += whole.rows) {
    const Mat x = whole.rows_from(0, std::min(whole.rows, hidden.rows - first));
    const ConstMat h = hidden.rows_from(first, x.rows);
    gemm_nt(context, h, weight, x);
    cross_entropy_rows(context, x, targets.data() + first, losses.data() + first, gradient.scale);
    gemm_nn(context, x, weight, gradient.d_hidden.rows_from(first, x.rows));
    gemm_tn(context, x, h, d_weight, true);
  }
}

void LinearOutput::log_probabilities(Context& context, ConstMat hidden, Mat out) {
  assert(out.cols == vocab_);
  gemm_nt(context, hidden, parameters_.value_mat(weight_), out);
  parallel_rows(context, out.rows, [&](int64_t first, int64_t count) {
    for (int64_t r = first; r < first + count; ++r) {
      float* row = out.row(r);
      float largest = row[0];
      for (int64_t c = 1; c < out.cols; ++c) largest = std::max(largest, row[c]);
      double sum = 0;
      for (int64_t c = 0; c < out.cols; ++c) sum += std::exp(static_cast<double>(row[c]) - largest);
      const auto log_sum = static_cast<float>(largest + std::log(sum));
      for (int64_t c = 0; c < out.cols; ++c) row[c] -= log_sum;
    }
  });
}

}  // namespace longshot
