#include "model/norm_bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace longshot {
namespace {

constexpr int kSquarings = 6;       // n = 2^6
constexpr double kRounding = 1e-4;  // floats were summed

using Square = std::vector<double>;  // [D, D], symmetric

Square squared(const Square& g, size_t dim) {
  Square out(g.size());
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j) {
      out[i * dim + j] =
          std::inner_product(g.begin() + static_cast<int64_t>(i * dim), g.begin() + static_cast<int64_t>((i + 1) * dim),
                             g.begin() + static_cast<int64_t>(j * dim), 0.0);
    }
  }
  return out;
}

double trace(const Square& g, size_t dim) {
  double sum = 0;
  for (size_t i = 0; i < dim; ++i) sum += g[i * (dim + 1)];
  return sum;
}

// At least |M|_2, for the columns of m[C, D] = M^T.
double spectral_bound(ConstMat m) {
  const auto dim = static_cast<size_t>(m.cols);
  Square g(dim * dim);
  for (int64_t r = 0; r < m.rows; ++r) {
    for (size_t i = 0; i < dim; ++i) {
      const double x = m(r, static_cast<int64_t>(i));
      for (size_t j = 0; j < dim; ++j) g[i * dim + j] += x * m(r, static_cast<int64_t>(j));
    }
  }
  double log_scale = 0;  // of g^n that was taken out, to keep numbers near 1
  for (int n = 0; n < kSquarings; ++n) {
    const double size = trace(g, dim);
    if (size == 0) return 0;
    for (double& x : g) x /= size;
    log_scale = 2 * (log_scale + std::log(size));
    g = squared(g, dim);
  }
  const double eigenvalue = std::exp((log_scale + std::log(trace(g, dim))) / (1 << kSquarings));
  return std::sqrt(eigenvalue);
}

double norm_of(ConstMat row) {
  double sum = 0;
  for (int64_t c = 0; c < row.cols; ++c) sum += double{row(0, c)} * row(0, c);
  return std::sqrt(sum);
}

// Of a token's vector, over the whole vocabulary.
double largest_embedding(Context& context, Transformer& model) {
  require(!model.position().adds_to_input(),
          "position method '{}' adds to the input, which has no bound that holds at every position",
          model.config().position);
  constexpr int64_t kRows = 1024;
  const int64_t vocab = model.config().vocab, dim = model.config().dim;
  std::vector<float> x(static_cast<size_t>(kRows * dim));
  std::vector<float> mean(kRows), rstd(kRows);
  double largest = 0;
  for (int64_t first = 0; first < vocab; first += kRows) {
    const int64_t count = std::min(kRows, vocab - first);
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), static_cast<int32_t>(first));
    const Mat rows(x.data(), count, dim);
    const int64_t position = 0;
    model.embed(context, {ids, count, {&position, 1}}, rows, {mean, rstd});
    for (int64_t r = 0; r < count; ++r) largest = std::max(largest, norm_of(rows.rows_from(r, 1)));
  }
  return largest;
}

}  // namespace

Layer::Input Layer::output_bound() const {
  const Norm norm = ffn_norm_.view();
  return {norm.weight, norm.bias, std::sqrt(static_cast<double>(config_.dim))};
}

std::vector<NormBounds> Layer::norm_bounds(Context& context, const Input& input) const {
  const int64_t dim = config_.dim, head_dim = config_.head_dim();
  const Norm norm = attention_norm_.view();
  const Input from = pre_norm_ ? Input{norm.weight, norm.bias, std::sqrt(static_cast<double>(dim))} : input;
  // Rows diag(g) and s go through the projection: [C + 1, C + 2K], diag(g) W^T and below it (W s)^T.
  const int64_t out = config_.qkv_dim();
  std::vector<float> rows(static_cast<size_t>((dim + 1) * dim)), projected(static_cast<size_t>((dim + 1) * out));
  const Mat x(rows.data(), dim + 1, dim), y(projected.data(), dim + 1, out);
  for (int64_t c = 0; c < dim; ++c) {
    x(c, c) = from.gains.empty() ? 1.0f : from.gains[static_cast<size_t>(c)];
    x(dim, c) = from.shift.empty() ? 0.0f : from.shift[static_cast<size_t>(c)];
  }
  const PrecisionScope exact(context, Precision::kF32);
  qkv_.forward(context, x, y);
  for (int64_t c = 0; c < out && qkv_.bias(); ++c) y(dim, c) += qkv_.bias()[c];
  const auto bound = [&](int64_t first) {
    const Mat head = y.cols_from(first, head_dim);
    const double largest = spectral_bound(head.rows_from(0, dim)) * from.radius + norm_of(head.rows_from(dim, 1));
    const double clipped =
        config_.clip_qkv > 0 ? config_.clip_qkv * std::sqrt(static_cast<double>(head_dim)) : HUGE_VAL;
    return std::min(largest * (1 + kRounding), clipped);
  };
  std::vector<NormBounds> bounds;
  const int64_t group = config_.heads / config_.key_heads();
  for (int64_t h = 0; h < config_.heads; ++h) {
    bounds.push_back({bound(h * head_dim) * config_.scale_of_scores(), bound(dim + h / group * head_dim)});
  }
  return bounds;
}

std::vector<std::vector<NormBounds>> norm_bounds(Context& context, Transformer& model, const Watch& watch) {
  std::vector<std::vector<NormBounds>> bounds;
  Layer::Input input;
  if (model.config().norm_position == NormPosition::kPost) input.radius = largest_embedding(context, model);
  for (const Layer& layer : model.layers()) {
    watch.at(static_cast<double>(bounds.size()) / static_cast<double>(model.config().layers));
    bounds.push_back(layer.norm_bounds(context, input));
    input = layer.output_bound();
  }
  watch.at(1);
  return bounds;
}

}  // namespace longshot
