#include "model/output.h"

#include <cassert>
#include <utility>

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

int64_t LinearOutput::gradient_room(const RowGroups& groups, int64_t rows) const {
  return GradientPieces::room(groups, scratch_floats(rows) / vocab_, weight().out() * weight().in());
}

// logits = h W^T;  g = (softmax(logits) - one_hot) scale;  dh = g W;  dW += g^T h
void LinearOutput::loss_and_gradient(Context& context, const Rows& rows, const Gradient& gradient) {
  const Mat whole = logits(rows.scratch);
  const RowGroup all{rows.hidden.rows, 0};
  GroupPieces pieces(gradient.groups.plain() ? RowGroups{{&all, 1}} : gradient.groups, whole.rows);
  GradientPieces d_weight(parameters_.grad_mat(weight_), gradient.room.data());
  while (const auto piece = pieces.next()) {
    const auto [first, count] = std::pair(piece->first, piece->count);
    const Mat x = whole.rows_from(0, count);
    const ConstMat h = rows.hidden.rows_from(first, count);
    product(context, h, weight(), x);
    cross_entropy(context, x, part(rows.targets, first, count), part(rows.losses, first, count), gradient.scale);
    product_transposed(context, x, weight(), gradient.d_hidden.rows_from(first, count));
    d_weight.add(context, *piece, x, h);
  }
}

void LinearOutput::log_probabilities(Context& context, ConstMat hidden, Mat out) {
  assert(out.cols == vocab_);
  product(context, hidden, weight(), out);
  log_softmax(context, out);
}

}  // namespace longshot
