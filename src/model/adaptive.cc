#include "model/adaptive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "kernels/gemm.h"
#include "kernels/rowwise.h"
#include "model/rows.h"

namespace longshot {
namespace {

constexpr int64_t kEmbeddingChunk = 512;    // rows; enough to feed the products
constexpr int64_t kLogitFloats = 16 << 20;  // of one chunk
constexpr int64_t kLeastRows = 64;          // a product with fewer would only read the matrix
constexpr int64_t kPaddingRow = 1;          // fairseq's padding id, and by accident row 1 of every band

using RowList = std::span<const int64_t>;

// out[i] = from[rows[i]]
void gather(Context& context, ConstMat from, RowList rows, Mat out) {
  parallel_rows(context, out.rows, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      std::memcpy(out.row(i), from.row(rows[static_cast<size_t>(i)]), static_cast<size_t>(out.cols) * sizeof(float));
    }
  });
}

// to[rows[i]] += from[i]; rows may repeat: threads share out columns, so that the order of additions is
// fixed.
void scatter_add(Context& context, ConstMat from, RowList rows, Mat to) {
  context.ranges(from.cols, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < from.rows; ++i) {
      const float* source = from.row(i);
      float* target = to.row(rows[static_cast<size_t>(i)]);
      for (int64_t c = begin; c < end; ++c) target[c] += source[c];
    }
  });
}

// Uniform in +-sqrt(6 / (in + out)), from a normal number by its distribution function.
std::function<float(int64_t, double)> xavier_uniform(int64_t out, int64_t in) {
  const double bound = std::sqrt(6.0 / static_cast<double>(out + in));
  return [bound](int64_t, double z) { return static_cast<float>(bound * std::erf(z / std::sqrt(2.0))); };
}

// x[r] = x[r] - log sum_c e^x[r][c]
void log_softmax(Context& context, Mat x) {
  parallel_rows(context, x.rows, [&](int64_t first, int64_t count) {
    for (int64_t r = first; r < first + count; ++r) {
      float* row = x.row(r);
      const float largest = *std::max_element(row, row + x.cols);
      double sum = 0;
      for (int64_t c = 0; c < x.cols; ++c) sum += std::exp(static_cast<double>(row[c]) - largest);
      const auto log_sum = static_cast<float>(largest + std::log(sum));
      for (int64_t c = 0; c < x.cols; ++c) row[c] -= log_sum;
    }
  });
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
  const Mat table = parameters_.value_mat(band.words);
  size_t next = 0;
  while (next < tokens.size()) {
    rows_.clear();
    for (; next < tokens.size() && rows_.size() < kEmbeddingChunk; ++next) {
      if (band.contains(tokens[next])) rows_.push_back(static_cast<int64_t>(next));
    }
    if (rows_.empty()) return;
    const Mat words(words_.data, static_cast<int64_t>(rows_.size()), band.dim);
    parallel_rows(context, words.rows, [&](int64_t first, int64_t count) {
      for (int64_t i = first; i < first + count; ++i) {
        const int32_t token = tokens[static_cast<size_t>(rows_[static_cast<size_t>(i)])];
        std::memcpy(words.row(i), table.row(token - band.first), static_cast<size_t>(band.dim) * sizeof(float));
      }
    });
    f(RowList(rows_), words);
  }
}

// x_r = scale P W[id_r]
void AdaptiveEmbedding::forward(Context& context, std::span<const int32_t> tokens, Mat x) {
  for (const AdaptiveBand& band : bands_) {
    for_each_chunk(context, band, tokens, [&](RowList rows, Mat words) {
      const Mat projected = projected_.rows_from(0, words.rows);
      gemm_nt(context, words, parameters_.value_mat(band.projection), projected);
      parallel_rows(context, words.rows, [&](int64_t first, int64_t count) {
        for (int64_t i = first; i < first + count; ++i) {
          const float* from = projected.row(i);
          float* to = x.row(rows[static_cast<size_t>(i)]);
          for (int64_t c = 0; c < x.cols; ++c) to[c] = scale_ * from[c];
        }
      });
    });
  }
}

// With g = scale dx:  dP += g^T W[id],  dW[id] += g P
void AdaptiveEmbedding::backward(Context& context, std::span<const int32_t> tokens, ConstMat dx) {
  for (const AdaptiveBand& band : bands_) {
    for_each_chunk(context, band, tokens, [&](RowList rows, Mat words) {
      const Mat g = projected_.rows_from(0, words.rows);
      parallel_rows(context, g.rows, [&](int64_t first, int64_t count) {
        for (int64_t i = first; i < first + count; ++i) {
          const float* from = dx.row(rows[static_cast<size_t>(i)]);
          float* to = g.row(i);
          for (int64_t c = 0; c < g.cols; ++c) to[c] = scale_ * from[c];
        }
      });
      gemm_tn(context, g, words, parameters_.grad_mat(band.projection), true);
      gemm_nn(context, g, parameters_.value_mat(band.projection), words);  // words is read no more: it takes g P
      for (int64_t& row : rows_) row = tokens[static_cast<size_t>(row)] - band.first;
      if (padding_rows_) {
        for (int64_t i = 0; i < words.rows; ++i) {
          if (rows_[static_cast<size_t>(i)] == kPaddingRow) std::fill_n(words.row(i), words.cols, 0.0f);
        }
      }
      scatter_add(context, words, rows_, parameters_.grad_mat(band.words));
    });
  }
}

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

Dropout AdaptiveSoftmax::input_dropout(const Gradient* gradient) const {
  return gradient ? Dropout{dropout_, mix64(gradient->dropout_key), 0} : Dropout{};
}

void AdaptiveSoftmax::loss(Context& context, ConstMat hidden, std::span<const int32_t> targets,
                           std::span<float> scratch, std::span<float> losses) {
  run(context, hidden, targets, scratch, losses, nullptr);
}

void AdaptiveSoftmax::loss_and_gradient(Context& context, ConstMat hidden, std::span<const int32_t> targets,
                                        std::span<float> scratch, std::span<float> losses, const Gradient& gradient) {
  run(context, hidden, targets, scratch, losses, &gradient);
}

void AdaptiveSoftmax::run(Context& context, ConstMat hidden, std::span<const int32_t> targets, std::span<float> scratch,
                          std::span<float> losses, const Gradient* gradient) {
  run_head(context, hidden, targets, scratch, losses, gradient);
  for (size_t k = 1; k < bands_.size(); ++k) run_tail(context, k, hidden, targets, scratch, losses, gradient);
}

// 1 hd = drop(h)   2 logits = hd [W_0; clusters]^T   3 loss, g   4 dW += g^T hd   5 dh = drop(g [W_0;
// clusters])
void AdaptiveSoftmax::run_head(Context& context, ConstMat hidden, std::span<const int32_t> targets,
                               std::span<float> scratch, std::span<float> losses, const Gradient* gradient) {
  const int64_t words = bands_[0].size, clusters = static_cast<int64_t>(bands_.size()) - 1;
  targets_.assign(targets.begin(), targets.end());
  for (int32_t& target : targets_) {
    for (size_t k = 1; k < bands_.size(); ++k) {
      if (bands_[k].contains(target)) {
        target = static_cast<int32_t>(words + static_cast<int64_t>(k) - 1);
        break;
      }
    }
  }
  const Mat w = parameters_.value_mat(bands_[0].words), c = parameters_.value_mat(clusters_);
  const Dropout drop = input_dropout(gradient);
  const int64_t step = static_cast<int64_t>(scratch.size()) / floats_per_row(0);
  for (int64_t first = 0; first < hidden.rows; first += step) {
    const Chunk m = chunk(0, std::min(step, hidden.rows - first), scratch.data());
    parallel_rows(context, m.hidden.rows, [&](int64_t r, int64_t n) {
      drop_rows(hidden.rows_from(first + r, n), drop.block(first + r), m.hidden.rows_from(r, n));
    });
    gemm_nt(context, m.hidden, w, m.logits.cols_from(0, words));
    gemm_nt(context, m.hidden, c, m.logits.cols_from(words, clusters));
    parallel_rows(context, m.logits.rows, [&](int64_t r, int64_t n) {
      cross_entropy(m.logits.rows_from(r, n), targets_.data() + first + r, losses.data() + first + r,
                    gradient != nullptr, gradient ? gradient->scale : 0);
    });
    if (!gradient) continue;
    const Mat g_words = m.logits.cols_from(0, words), g_clusters = m.logits.cols_from(words, clusters);
    gemm_tn(context, g_words, m.hidden, parameters_.grad_mat(bands_[0].words), true);
    gemm_tn(context, g_clusters, m.hidden, parameters_.grad_mat(clusters_), true);
    gemm_nn(context, g_words, w, m.d_hidden);
    gemm_nn(context, g_clusters, c, m.d_hidden, true);
    parallel_rows(context, m.hidden.rows, [&](int64_t r, int64_t n) {
      drop_rows(m.d_hidden.rows_from(r, n), drop.block(first + r), gradient->d_hidden.rows_from(first + r, n));
    });
  }
}

// For the tokens of band k:
// 1 hd = drop(h)   2 z = hd P   3 zd = drop(z)   4 logits = zd W^T   5 loss, g
// 4 dW += g^T zd   3 dz = drop(g W)   2 dP += hd^T dz,  dhd = dz P^T   1 dh += drop(dhd)
void AdaptiveSoftmax::run_tail(Context& context, size_t k, ConstMat hidden, std::span<const int32_t> targets,
                               std::span<float> scratch, std::span<float> losses, const Gradient* gradient) {
  const AdaptiveBand& band = bands_[k];
  rows_.clear();
  targets_.clear();
  for (size_t r = 0; r < targets.size(); ++r) {
    if (!band.contains(targets[r])) continue;
    rows_.push_back(static_cast<int64_t>(r));
    const int64_t target = targets[r] - band.first;
    const bool ignored = gradient && padding_rows_ && target == kPaddingRow;
    targets_.push_back(static_cast<int32_t>(ignored ? -1 : target));
  }
  const auto count = static_cast<int64_t>(rows_.size());
  losses_.resize(rows_.size());
  const Mat w = parameters_.value_mat(band.words), p = parameters_.value_mat(band.projection);
  const Dropout drop = input_dropout(gradient);
  const Dropout tail_drop{drop.rate, mix64(drop.key ^ k), 0};
  const int64_t step = static_cast<int64_t>(scratch.size()) / floats_per_row(k);
  for (int64_t first = 0; first < count; first += step) {
    const Chunk m = chunk(k, std::min(step, count - first), scratch.data());
    const RowList rows = RowList(rows_).subspan(static_cast<size_t>(first), static_cast<size_t>(m.hidden.rows));
    const auto drop_each = [&](Mat x) {  // rows of x are rows of the whole
      if (drop.rate == 0) return;
      parallel_rows(context, x.rows, [&](int64_t r, int64_t n) {
        for (int64_t i = r; i < r + n; ++i) {
          drop_rows(x.rows_from(i, 1), drop.block(rows[static_cast<size_t>(i)]), x.rows_from(i, 1));
        }
      });
    };
    const auto drop_tail = [&](ConstMat x, Mat out) {
      parallel_rows(context, x.rows, [&](int64_t r, int64_t n) {
        drop_rows(x.rows_from(r, n), tail_drop.block(first + r), out.rows_from(r, n));
      });
    };
    gather(context, hidden, rows, m.hidden);
    drop_each(m.hidden);
    gemm_nn(context, m.hidden, p, m.reduced);
    drop_tail(m.reduced, m.dropped);
    gemm_nt(context, m.dropped, w, m.logits);
    parallel_rows(context, m.logits.rows, [&](int64_t r, int64_t n) {
      cross_entropy(m.logits.rows_from(r, n), targets_.data() + first + r, losses_.data() + first + r,
                    gradient != nullptr, gradient ? gradient->scale : 0);
    });
    if (!gradient) continue;
    gemm_tn(context, m.logits, m.dropped, parameters_.grad_mat(band.words), true);
    gemm_nn(context, m.logits, w, m.d_reduced);
    drop_tail(m.d_reduced, m.d_reduced);
    gemm_tn(context, m.hidden, m.d_reduced, parameters_.grad_mat(band.projection), true);
    gemm_nt(context, m.d_reduced, p, m.d_hidden);
    drop_each(m.d_hidden);
    scatter_add(context, m.d_hidden, rows, gradient->d_hidden);
  }
  for (size_t i = 0; i < rows_.size(); ++i) losses[static_cast<size_t>(rows_[i])] += losses_[i];
}

void AdaptiveSoftmax::log_probabilities(Context& context, ConstMat hidden, Mat out) {
  const int64_t words = bands_[0].size, clusters = static_cast<int64_t>(bands_.size()) - 1;
  std::vector<float> head_memory(static_cast<size_t>(hidden.rows * columns(0)));
  const Mat head(head_memory.data(), hidden.rows, columns(0));
  gemm_nt(context, hidden, parameters_.value_mat(bands_[0].words), head.cols_from(0, words));
  gemm_nt(context, hidden, parameters_.value_mat(clusters_), head.cols_from(words, clusters));
  log_softmax(context, head);
  for (int64_t r = 0; r < out.rows; ++r) std::copy_n(head.row(r), words, out.row(r));
  for (size_t k = 1; k < bands_.size(); ++k) {
    const AdaptiveBand& band = bands_[k];
    std::vector<float> reduced_memory(static_cast<size_t>(hidden.rows * band.dim));
    const Mat reduced(reduced_memory.data(), hidden.rows, band.dim);
    const Mat tail = out.cols_from(band.first, band.size);
    gemm_nn(context, hidden, parameters_.value_mat(band.projection), reduced);
    gemm_nt(context, reduced, parameters_.value_mat(band.words), tail);
    log_softmax(context, tail);
    for (int64_t r = 0; r < tail.rows; ++r) {
      const float cluster = head(r, words + static_cast<int64_t>(k) - 1);
      for (int64_t c = 0; c < tail.cols; ++c) tail(r, c) += cluster;
    }
  }
}

}  // namespace longshot
