// T5's relative bias, causal side (Raffel et al., arXiv 1910.10683): a trained scalar per (bucket of distance, head).
// With n buckets and max distance M, and e = n / 2:
//
//   bucket(d) = d                                                     d < e
//             = min(n - 1, e + floor(ln(d / e) / ln(M / e) * (n - e)))   d >= e
#include <cmath>

#include "base/error.h"
#include "position/position.h"

namespace longshot {
namespace {

struct T5Options : MethodOptions<T5Options> {
  int64_t buckets = 32, max_distance = 128;
  bool shared = true;

  void fields(Options& o) override {
    o.add("t5-buckets", buckets, "number of buckets");
    o.add("t5-max-distance", max_distance, "distances from here on share the last bucket");
    o.add("t5-shared", shared, "one table for all layers");
  }
  std::unique_ptr<Position> make(const PositionShape& shape) const override;
};

class T5 : public Position {
 public:
  T5(const T5Options& options, const PositionShape& shape)
      : heads_(shape.heads),
        buckets_(options.buckets),
        max_distance_(options.max_distance),
        tables_(options.shared ? 1 : shape.layers) {
    require_usage(buckets_ >= 2 && buckets_ <= 1 << 20, "--t5-buckets: {} is not between 2 and {}", buckets_, 1 << 20);
    require_usage(max_distance_ >= 2 && max_distance_ <= 1 << 30, "--t5-max-distance: {} is not between 2 and {}",
                  max_distance_, 1 << 30);
    require_usage(max_distance_ > buckets_ / 2, "--t5-max-distance ({}) must exceed half of --t5-buckets ({})",
                  max_distance_, buckets_);
  }

  std::vector<PositionTensor> tensors() const override {
    return {{"bias", {tables_, buckets_, heads_}, [](int64_t, double z) { return static_cast<float>(0.02 * z); }}};
  }

  void bind(Tensors values) override { weights_ = values[0]; }

  // Spreads the buckets over distances, far to near as DistanceBias wants it. From the maximum on all are alike.
  void prepare(int64_t, int64_t last) override {
    distances_ = std::min(last, max_distance_ + 1);
    for (auto d = static_cast<int64_t>(bucket_.size()); d < distances_; ++d) bucket_.push_back(bucket_of(d));
    by_distance_.resize(static_cast<size_t>(tables_ * heads_ * distances_));
    for (int64_t t = 0; t < tables_; ++t) {
      for (int64_t h = 0; h < heads_; ++h) {
        float* row = by_distance_.data() + (t * heads_ + h) * distances_;
        for (int64_t d = 0; d < distances_; ++d) row[distances_ - 1 - d] = weights_[index(t, d, h)];
      }
    }
  }

  DistanceBias bias(int64_t layer) const override {
    const float* table = by_distance_.data() + (layer % tables_) * heads_ * distances_;
    return {
        .kind = DistanceBias::Kind::kTable, .slopes = {}, .table = {table, heads_, distances_}, .wants_gradient = true};
  }

  void bias_backward(int64_t layer, ConstMat d_bias, Tensors grads) const override {
    const int64_t n = d_bias.cols;
    for (int64_t h = 0; h < heads_; ++h) {
      for (int64_t d = 0; d < n; ++d) grads[0][index(layer % tables_, d, h)] += d_bias(h, n - 1 - d);
    }
  }

 private:
  int64_t bucket_of(int64_t d) const {
    const int64_t exact = buckets_ / 2;
    if (d < exact) return d;
    const double share = std::log(static_cast<double>(d) / static_cast<double>(exact)) /
                         std::log(static_cast<double>(max_distance_) / static_cast<double>(exact));
    return std::min(buckets_ - 1, exact + static_cast<int64_t>(share * static_cast<double>(buckets_ - exact)));
  }
  size_t index(int64_t table, int64_t d, int64_t h) const {
    return static_cast<size_t>((table * buckets_ + bucket_[static_cast<size_t>(d)]) * heads_ + h);
  }

  int64_t heads_, buckets_, max_distance_;
  int64_t tables_;                  // 1 when shared over layers, else one per layer
  int64_t distances_ = 0;           // in the tables
  std::vector<int64_t> bucket_;     // [distance]
  std::vector<float> by_distance_;  // [tables, H, distances]
  std::span<const float> weights_;  // [tables, buckets, H]
};

std::unique_ptr<Position> T5Options::make(const PositionShape& shape) const {
  return std::make_unique<T5>(*this, shape);
}

}  // namespace

extern const PositionMethod position_t5{
    .name = "t5",
    .summary = "trained bias per head and bucket of distance (arXiv 1910.10683)",
    .options = T5Options::initial,
};

}  // namespace longshot
