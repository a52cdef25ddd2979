#include "model/output.h"

#include <cassert>

#include "kernels/rowwise.h"

namespace longshot {
namespace {

// Large enough that a product with the [V, C] matrix is worth packing it, small enough to stay out of the way.
constexpr int64_t kChunkFloats = 16 << 20;

}  // namespace

int64_t LinearOutput::scratch_floats(int64_t rows) const {
  return std::min(rows, std::max<int64_t>(kChunkFloats / vocab_, 64)) * vocab_;
}

Mat LinearOutput::logits(std::span<float> scratch) const {
  return {scratch.data(), static_cast<int64_t>(scratch.size()) / vocab_, vocab_};
}

void LinearOutput::loss(Context& context, const Rows& rows) {
  const Mat whole = logits(rows.scratch);
  for (int64_t first = 0; first < rows.hidden.rows; first += whole.rows) {
    const Mat x = whole.rows_from(0, std::min(whole.rows, rows.hidden.rows - first));
    product(context, rows.hidden.rows_from(first, x.rows), weight(), x);
    cross_entropy(context, x, part(rows.targets, first, x.rows), part(rows.losses, first, x.rows), {});
  }
}

// logits = h W^T;  g = (softmax(logits) - one_hot) scale;  dh = g W;  dW += g^T h
void LinearOutput::loss_and_gradient(Context& context, const Rows& rows, const Gradient& gradient) {
  const Mat d_weight = parameters_.grad_mat(weight_), whole = logits(rows.scratch);
  for (int64_t first = 0; first < rows.hidden.rows; first += whole.rows) {
    const Mat x = whole.rows_from(0, std::min(whole.rows, rows.hidden.rows - first));
    const ConstMat h = rows.hidden.rows_from(first, x.rows);
    product(context, h, weight(), x);
    cross_entropy(context, x, part(rows.targets, first, x.rows), part(rows.losses, first, x.rows), gradient.scale);
    product_transposed(context, x, weight(), gradient.d_hidden.rows_from(first, x.rows));
    product_gradient(context, x, h, d_weight);
  }
}

void LinearOutput::log_probabilities(Context& context, ConstMat hidden, Mat out) {
  assert(out.cols == vocab_);
  product(context, hidden, weight(), out);
  log_softmax(context, out);
}

}  // namespace longshot
