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

// The tree over rows picked from a whole, whose numbers `rows` are ascending; all as one group where there is no tree.
RowGroups groups_of(const RowGroups& whole, std::span<const int32_t> rows, std::vector<RowGroup>& groups) {
  groups.clear();
  size_t end = 0;
  for (const RowGroup& g : whole.groups) {
    while (end < rows.size() && rows[end] < g.end - whole.begin) ++end;
    groups.push_back({static_cast<int64_t>(end), g.merges});
  }
  if (groups.empty()) groups.push_back({std::ssize(rows), 0});
  return {groups};
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

void AdaptiveEmbedding::find(const AdaptiveBand& band, std::span<const int32_t> tokens) {
  places_.clear(), ids_.clear();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!band.contains(tokens[i])) continue;
    places_.push_back(static_cast<int32_t>(i));
    ids_.push_back(static_cast<int32_t>(tokens[i] - band.first));
  }
}

// x_r = scale P W[id_r]
void AdaptiveEmbedding::forward(Context& context, std::span<const int32_t> tokens, Mat x) {
  for (const AdaptiveBand& band : bands_) {
    find(band, tokens);
    for (int64_t first = 0; first < std::ssize(ids_); first += kEmbeddingChunk) {
      const int64_t count = std::min(kEmbeddingChunk, std::ssize(ids_) - first);
      const Mat words(words_.data, count, band.dim), projected = projected_.rows_from(0, count);
      gather(context, parameters_.weight(band.words), part<const int32_t>(ids_, first, count), 1, words);
      product(context, words, parameters_.weight(band.projection), projected);
      scatter(context, projected, part<const int32_t>(places_, first, count), scale_, x);
    }
  }
}

// With g = scale dx:  dP += g^T W[id],  dW[id] += g P
void AdaptiveEmbedding::backward(Context& context, std::span<const int32_t> tokens, const Gradient& gradient) {
  for (const AdaptiveBand& band : bands_) {
    find(band, tokens);
    const RowGroups groups = groups_of(gradient.groups, places_, groups_);
    const Mat d_projection = parameters_.grad_mat(band.projection);
    const Mat d_words(gradient.room.data, std::ssize(ids_), band.dim);
    room_.resize(
        static_cast<size_t>(GradientPieces::room(groups, kEmbeddingChunk, d_projection.rows * d_projection.cols)));
    GradientPieces d_projections(d_projection, room_.data());
    GroupPieces pieces(groups, kEmbeddingChunk);
    while (const auto piece = pieces.next()) {
      const auto [first, count] = std::pair(piece->first, piece->count);
      const Mat words(words_.data, count, band.dim), g = projected_.rows_from(0, count);
      gather(context, parameters_.weight(band.words), part<const int32_t>(ids_, first, count), 1, words);
      gather(context, gradient.dx, part<const int32_t>(places_, first, count), scale_, g);
      d_projections.add(context, *piece, g, words);
      product_transposed(context, g, parameters_.weight(band.projection), d_words.rows_from(first, count));
    }
    for (int64_t i = 0; padding_rows_ && i < d_words.rows; ++i) {
      if (ids_[static_cast<size_t>(i)] == kPaddingRow) std::fill_n(d_words.row(i), d_words.cols, 0.0f);
    }
    scatter_add(context, {d_words, ids_}, parameters_.grad_mat(band.words), groups, order_);
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

AdaptiveSoftmax::AdaptiveSoftmax(const ModelConfig& config, Parameters& parameters, AdaptiveBands bands,
                                 SharedGradients shared)
    : parameters_(parameters),
      bands_(std::move(bands)),
      dim_(config.dim),
      dropout_(static_cast<float>(config.adaptive_dropout)),
      padding_rows_(config.adaptive_padding_rows) {
  const auto clusters = static_cast<int64_t>(bands_.size()) - 1;
  clusters_ = parameters.add("output.clusters", {clusters, dim_}, true, xavier_uniform(clusters, dim_));
  for (size_t k = 0; k < bands_.size(); ++k) {
    gradients_.push_back({parameters.add_use(bands_[k].words, shared),
                          k == 0 ? GradientId{} : parameters.add_use(bands_[k].projection, shared)});
  }
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

// Of the head's or a tail's two gradients, whichever want the most. A tail's groups are its own; none is larger, and a tree
// has no more partial sums than levels.
int64_t AdaptiveSoftmax::gradient_room(const RowGroups& groups, int64_t rows) const {
  const auto scratch = static_cast<int64_t>(scratch_floats(rows));
  int64_t most = 0;
  for (size_t k = 0; k < bands_.size(); ++k) {
    const AdaptiveBand& band = bands_[k];
    const int64_t second = k == 0 ? std::ssize(bands_) - 1 : band.dim;
    const bool whole = groups.end() - groups.begin <= scratch / floats_per_row(k);
    most = std::max(most, whole ? 0 : (groups.depth() - 1) * (band.size * (k == 0 ? dim_ : band.dim) + second * dim_));
  }
  return most;
}

std::optional<float> AdaptiveSoftmax::scale_of(const Gradient* gradient) {
  return gradient ? std::optional(gradient->scale) : std::nullopt;
}

Dropout AdaptiveSoftmax::input_dropout(const Gradient* gradient) const {
  return gradient ? Dropout{.rate = dropout_, .key = mix64(gradient->dropout_key), .first_row = gradient->first_row}
                  : Dropout{};
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
  const RowGroup whole{all.hidden.rows, 0};
  const bool by_groups = gradient && !gradient->groups.plain();
  GroupPieces pieces(by_groups ? gradient->groups : RowGroups{{&whole, 1}}, step);
  std::optional<GradientPieces> d_words, d_clusters;
  if (gradient) {
    const Mat dw = parameters_.grad_mat(gradients_[0].words);
    const int64_t sums = by_groups ? depth_of_pieces(gradient->groups, step) - 1 : 0;
    d_words.emplace(dw, gradient->room.data());
    d_clusters.emplace(parameters_.grad_mat(clusters_), gradient->room.data() + sums * dw.rows * dw.cols);
  }
  while (const auto piece = pieces.next()) {
    const int64_t first = piece->first;
    const Chunk m = chunk(0, piece->count, all.scratch.data());
    drop_rows(context, all.hidden.rows_from(first, m.hidden.rows), drop.block(first), m.hidden);
    const Mat g_words = m.logits.cols_from(0, words), g_clusters = m.logits.cols_from(words, clusters);
    product(context, m.hidden, w, g_words);
    product(context, m.hidden, c, g_clusters);
    cross_entropy(context, m.logits, part<const int32_t>(targets_, first, m.logits.rows),
                  part(all.losses, first, m.logits.rows), scale_of(gradient));
    if (!gradient) continue;
    d_words->add(context, *piece, g_words, m.hidden);
    d_clusters->add(context, *piece, g_clusters, m.hidden);
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
  losses_.resize(rows_.size());
  const Weight w = parameters_.weight(band.words), p = parameters_.weight(band.projection);
  const Dropout drop = input_dropout(gradient);
  const int64_t step = static_cast<int64_t>(all.scratch.size()) / floats_per_row(k);
  const RowGroups groups = groups_of(gradient ? gradient->groups : RowGroups{}, rows_, groups_);
  GroupPieces pieces(groups, step);
  std::optional<GradientPieces> d_words, d_projection;
  if (gradient) {
    const Mat dw = parameters_.grad_mat(gradients_[k].words);
    const int64_t sums = depth_of_pieces(groups, step) - 1;
    d_words.emplace(dw, gradient->room.data());
    d_projection.emplace(parameters_.grad_mat(gradients_[k].projection),
                         gradient->room.data() + sums * dw.rows * dw.cols);
  }
  while (const auto piece = pieces.next()) {
    const int64_t first = piece->first;
    const Chunk m = chunk(k, piece->count, all.scratch.data());
    const RowList rows = RowList(rows_).subspan(static_cast<size_t>(first), static_cast<size_t>(m.hidden.rows));
    const Dropout input_drop{drop.rate, drop.key, drop.first_row, rows.data()};
    const Dropout tail_drop{drop.rate, mix64(drop.key ^ k), drop.first_row, rows.data()};
    gather(context, all.hidden, rows, 1, m.hidden);
    drop_rows(context, m.hidden, input_drop, m.hidden);
    product_transposed(context, m.hidden, p, m.reduced);
    drop_rows(context, m.reduced, tail_drop, m.dropped);
    product(context, m.dropped, w, m.logits);
    cross_entropy(context, m.logits, part<const int32_t>(targets_, first, m.logits.rows),
                  part<float>(losses_, first, m.logits.rows), scale_of(gradient));
    if (!gradient) continue;
    d_words->add(context, *piece, m.logits, m.dropped);
    product_transposed(context, m.logits, w, m.d_reduced);
    drop_rows(context, m.d_reduced, tail_drop, m.d_reduced);
    d_projection->add(context, *piece, m.hidden, m.d_reduced);
    product(context, m.d_reduced, p, m.d_hidden);
    drop_rows(context, m.d_hidden, input_drop, m.d_hidden);
    scatter_add(context, {m.d_hidden, rows}, gradient->d_hidden);
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
