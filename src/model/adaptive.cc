#include "model/adaptive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "kernels/gather.h"
#include "kernels/product.h"
#include "kernels/rowwise.h"

namespace longshot {
namespace {

constexpr int64_t kEmbeddingChunk = 512;    // rows; enough to feed the products
constexpr int64_t kLogitFloats = 16 << 20;  // of one chunk
constexpr int64_t kLeastRows = 64;          // a product with fewer would only read the matrix
constexpr int64_t kPaddingRow = 1;          // fairseq's padding id, and by accident row 1 of every band

// Uniform in +-sqrt(6 / (in + out)), from a normal number by its distribution function.
Initializer xavier_uniform(int64_t out, int64_t in) {
  const double bound = std::sqrt(6.0 / static_cast<double>(out + in));
  return [bound](int64_t, double z) { return static_cast<float>(bound * std::erf(z / std::sqrt(2.0))); };
}

}  // namespace

AdaptiveBands add_adaptive_bands(const ModelConfig& config, Parameters& parameters) {
  AdaptiveBands bands;
  for (size_t k = 0; k <= config.adaptive_cutoffs.size(); ++k) {
    const int64_t first = k == 0 ? 0 : config.adaptive_cutoffs[k - 1];
    const int64_t end = k < config.adaptive_cutoffs.size() ? config.adaptive_cutoffs[k] : config.vocab;
    const int64_t dim = config.adaptive_dim(k);
    const double deviation = 1 / std::sqrt(static_cast<double>(dim));
    const auto words = [dim, deviation](int64_t index, double z) {
      return index / dim == kPaddingRow ? 0.0f : static_cast<float>(deviation * z);
    };
    const std::string name = fmt::format("embed.band{}", k);
    bands.push_back({first, end - first, dim, parameters.add(name + ".weight", {end - first, dim}, true, words),
                     parameters.add(name + ".projection", {config.dim, dim}, true, xavier_uniform(config.dim, dim))});
  }
  return bands;
}

AdaptiveEmbedding::AdaptiveEmbedding(const ModelConfig& config, Parameters& parameters, AdaptiveBands bands)
    : parameters_(parameters),
      bands_(std::move(bands)),
      scale_(config.embed_scale ? std::sqrt(static_cast<float>(config.dim)) : 1.0f),
      padding_rows_(config.adaptive_padding_rows) {
  memory_ = Workspace([&](Layout& at) {
    words_ = at.mat(kEmbeddingChunk, config.dim);
    projected_ = at.mat(kEmbeddingChunk, config.dim);
  });
}

template <class F>
void AdaptiveEmbedding::for_each_chunk(Context& context, const AdaptiveBand& band, std::span<const int32_t> tokens,
                                       F f) {
  size_t next = 0;
  while (next < tokens.size()) {
    places_.clear(), ids_.clear();
    for (; next < tokens.size() && ids_.size() < kEmbeddingChunk; ++next) {
      if (!band.contains(tokens[next])) continue;
      places_.push_back(static_cast<int32_t>(next));
      ids_.push_back(static_cast<int32_t>(tokens[next] - band.first));
    }
    if (ids_.empty()) return;
    const Mat words(words_.data, static_cast<int64_t>(ids_.size()), band.dim);
    gather(context, parameters_.weight(band.words), ids_, 1, words);
    f(words);
  }
}

// x_r = scale P W[id_r]
void AdaptiveEmbedding::forward(Context& context, std::span<const int32_t> tokens, Mat x) {
  for (const AdaptiveBand& band : bands_) {
    for_each_chunk(context, band, tokens, [&](Mat words) {
      const Mat projected = projected_.rows_from(0, words.rows);
      product(context, words, parameters_.weight(band.projection), projected);
      scatter(context, projected, places_, scale_, x);
    });
  }
}

// With g = scale dx:  dP += g^T W[id],  dW[id] += g P
void AdaptiveEmbedding::backward(Context& context, std::span<const int32_t> tokens, ConstMat dx) {
  for (const AdaptiveBand& band : bands_) {
    for_each_chunk(context, band, tokens, [&](Mat words) {
      const Mat g = projected_.rows_from(0, words.rows);
      gather(context, dx, places_, scale_, g);
      product_gradient(context, g, words, parameters_.grad_mat(band.projection));
      // words is read no more: it takes g P
      product_transposed(context, g, parameters_.weight(band.projection), words);
      if (padding_rows_) {
        for (int64_t i = 0; i < words.rows; ++i) {
          if (ids_[static_cast<size_t>(i)] == kPaddingRow) std::fill_n(words.row(i), words.cols, 0.0f);
        }
      }
      scatter_add(context, words, ids_, 1, parameters_.grad_mat(band.words));
    });
  }
}

// Every token is projected with its band's matrix; counted as if all were in the first.
int64_t AdaptiveEmbedding::multiply_adds() const { return projected_.cols * bands_[0].dim; }

// Memory for one chunk of rows of one band.
struct AdaptiveSoftmax::Chunk {
  Mat hidden;     // [n, C] after dropout
  Mat d_hidden;   // [n, C]
  Mat reduced;    // [n, d_k] h P_k
  Mat dropped;    // [n, d_k] after dropout
  Mat d_reduced;  // [n, d_k]
  Mat logits;     // [n, words of the band; the head: and clusters]
};

AdaptiveSoftmax::AdaptiveSoftmax(const ModelConfig& config, Parameters& parameters, AdaptiveBands bands)
    : parameters_(parameters),
      bands_(std::move(bands)),
      dim_(config.dim),
      dropout_(static_cast<float>(config.adaptive_dropout)),
      padding_rows_(config.adaptive_padding_rows) {
  const auto clusters = static_cast<int64_t>(bands_.size()) - 1;
  clusters_ = parameters.add("output.clusters", {clusters, dim_}, true, xavier_uniform(clusters, dim_));
}

int64_t AdaptiveSoftmax::columns(size_t band) const {
  return bands_[band].size + (band == 0 ? static_cast<int64_t>(bands_.size()) - 1 : 0);
}

int64_t AdaptiveSoftmax::multiply_adds() const { return columns(0) * dim_; }

int64_t AdaptiveSoftmax::floats_per_row(size_t band) const {
  return 2 * dim_ + (band == 0 ? 0 : 3 * bands_[band].dim) + columns(band);
}

AdaptiveSoftmax::Chunk AdaptiveSoftmax::chunk(size_t band, int64_t rows, float* scratch) const {
  const auto take = [&](int64_t cols) {
    const Mat m(scratch, rows, cols);
    scratch += rows * cols;
    return m;
  };
  const int64_t dim = band == 0 ? 0 : bands_[band].dim;
  return {take(dim_), take(dim_), take(dim), take(dim), take(dim), take(columns(band))};
}

int64_t AdaptiveSoftmax::scratch_floats(int64_t rows) const {
  int64_t most = 0;
  for (size_t k = 0; k < bands_.size(); ++k) {
    const int64_t chunk = std::min(rows, std::max(kLogitFloats / columns(k), kLeastRows));
    most = std::max(most, chunk * floats_per_row(k));
  }
  return most;
}

std::optional<float> AdaptiveSoftmax::scale_of(const Gradient* gradient) {
  return gradient ? std::optional(gradient->scale) : std::nullopt;
}

Dropout AdaptiveSoftmax::input_dropout(const Gradient* gradient) const {
  return gradient ? Dropout{.rate = dropout_, .key = mix64(gradient->dropout_key)} : Dropout{};
}

void AdaptiveSoftmax::loss(Context& context, const Rows& rows) { run(context, rows, nullptr); }

void AdaptiveSoftmax::loss_and_gradient(Context& context, const Rows& rows, const Gradient& gradient) {
  run(context, rows, &gradient);
}

void AdaptiveSoftmax::run(Context& context, const Rows& rows, const Gradient* gradient) {
  run_head(context, rows, gradient);
  for (size_t k = 1; k < bands_.size(); ++k) run_tail(context, k, rows, gradient);
}

// 1 hd = drop(h)   2 logits = hd [W_0; clusters]^T   3 loss, g   4 dW += g^T hd   5 dh = drop(g [W_0; clusters])
void AdaptiveSoftmax::run_head(Context& context, const Rows& all, const Gradient* gradient) {
  const int64_t words = bands_[0].size, clusters = static_cast<int64_t>(bands_.size()) - 1;
  targets_.assign(all.targets.begin(), all.targets.end());
  for (int32_t& target : targets_) {
    for (size_t k = 1; k < bands_.size(); ++k) {
      if (bands_[k].contains(target)) {
        target = static_cast<int32_t>(words + static_cast<int64_t>(k) - 1);
        break;
      }
    }
  }
  const Weight w = parameters_.weight(bands_[0].words), c = parameters_.weight(clusters_);
  const Dropout drop = input_dropout(gradient);
  const int64_t step = static_cast<int64_t>(all.scratch.size()) / floats_per_row(0);
  for (int64_t first = 0; first < all.hidden.rows; first += step) {
    const Chunk m = chunk(0, std::min(step, all.hidden.rows - first), all.scratch.data());
    drop_rows(context, all.hidden.rows_from(first, m.hidden.rows), drop.block(first), m.hidden);
    const Mat g_words = m.logits.cols_from(0, words), g_clusters = m.logits.cols_from(words, clusters);
    product(context, m.hidden, w, g_words);
    product(context, m.hidden, c, g_clusters);
    cross_entropy(context, m.logits, part<const int32_t>(targets_, first, m.logits.rows),
                  part(all.losses, first, m.logits.rows), scale_of(gradient));
    if (!gradient) continue;
    product_gradient(context, g_words, m.hidden, parameters_.grad_mat(bands_[0].words));
    product_gradient(context, g_clusters, m.hidden, parameters_.grad_mat(clusters_));
    product_transposed(context, g_words, w, m.d_hidden);
    product_transposed(context, g_clusters, c, m.d_hidden, true);
    drop_rows(context, m.d_hidden, drop.block(first), gradient->d_hidden.rows_from(first, m.hidden.rows));
  }
}

// For the tokens of band k:
// 1 hd = drop(h)   2 z = hd P   3 zd = drop(z)   4 logits = zd W^T   5 loss, g
// 4 dW += g^T zd   3 dz = drop(g W)   2 dP += hd^T dz,  dhd = dz P^T   1 dh += drop(dhd)
void AdaptiveSoftmax::run_tail(Context& context, size_t k, const Rows& all, const Gradient* gradient) {
  const AdaptiveBand& band = bands_[k];
  rows_.clear();
  targets_.clear();
  for (size_t r = 0; r < all.targets.size(); ++r) {
    if (!band.contains(all.targets[r])) continue;
    rows_.push_back(static_cast<int32_t>(r));
    const int64_t target = all.targets[r] - band.first;
    const bool ignored = gradient && padding_rows_ && target == kPaddingRow;
    targets_.push_back(static_cast<int32_t>(ignored ? -1 : target));
  }
  const auto count = static_cast<int64_t>(rows_.size());
  losses_.resize(rows_.size());
  const Weight w = parameters_.weight(band.words), p = parameters_.weight(band.projection);
  const Dropout drop = input_dropout(gradient);
  const Dropout tail_drop{.rate = drop.rate, .key = mix64(drop.key ^ k)};
  const int64_t step = static_cast<int64_t>(all.scratch.size()) / floats_per_row(k);
  for (int64_t first = 0; first < count; first += step) {
    const Chunk m = chunk(k, std::min(step, count - first), all.scratch.data());
    const RowList rows = RowList(rows_).subspan(static_cast<size_t>(first), static_cast<size_t>(m.hidden.rows));
    const Dropout input_drop{drop.rate, drop.key, 0, rows.data()};
    gather(context, all.hidden, rows, 1, m.hidden);
    drop_rows(context, m.hidden, input_drop, m.hidden);
    product_transposed(context, m.hidden, p, m.reduced);
    drop_rows(context, m.reduced, tail_drop.block(first), m.dropped);
    product(context, m.dropped, w, m.logits);
    cross_entropy(context, m.logits, part<const int32_t>(targets_, first, m.logits.rows),
                  part<float>(losses_, first, m.logits.rows), scale_of(gradient));
    if (!gradient) continue;
    product_gradient(context, m.logits, m.dropped, parameters_.grad_mat(band.words));
    product_transposed(context, m.logits, w, m.d_reduced);
    drop_rows(context, m.d_reduced, tail_drop.block(first), m.d_reduced);
    product_gradient(context, m.hidden, m.d_reduced, parameters_.grad_mat(band.projection));
    product(context, m.d_reduced, p, m.d_hidden);
    drop_rows(context, m.d_hidden, input_drop, m.d_hidden);
    scatter_add(context, m.d_hidden, rows, 1, gradient->d_hidden);
  }
  for (size_t i = 0; i < rows_.size(); ++i) all.losses[static_cast<size_t>(rows_[i])] += losses_[i];
}

void AdaptiveSoftmax::log_probabilities(Context& context, ConstMat hidden, Mat out) {
  const int64_t words = bands_[0].size, clusters = static_cast<int64_t>(bands_.size()) - 1;
  std::vector<float> head_memory(static_cast<size_t>(hidden.rows * columns(0)));
  const Mat head(head_memory.data(), hidden.rows, columns(0));
  product(context, hidden, parameters_.weight(bands_[0].words), head.cols_from(0, words));
  product(context, hidden, parameters_.weight(clusters_), head.cols_from(words, clusters));
  log_softmax(context, head);
  for (int64_t r = 0; r < out.rows; ++r) std::copy_n(head.row(r), words, out.row(r));
  for (size_t k = 1; k < bands_.size(); ++k) {
    const AdaptiveBand& band = bands_[k];
    std::vector<float> reduced_memory(static_cast<size_t>(hidden.rows * band.dim));
    const Mat reduced(reduced_memory.data(), hidden.rows, band.dim);
    const Mat tail = out.cols_from(band.first, band.size);
    product_transposed(context, hidden, parameters_.weight(band.projection), reduced);
    product(context, reduced, parameters_.weight(band.words), tail);
    log_softmax(context, tail);
    for (int64_t r = 0; r < tail.rows; ++r) {
      const float cluster = head(r, words + static_cast<int64_t>(k) - 1);
      for (int64_t c = 0; c < tail.cols; ++c) tail(r, c) += cluster;
    }
  }
}

}  // namespace longshot
