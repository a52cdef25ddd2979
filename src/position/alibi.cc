// ALiBi: attention with linear biases (Press, Smith, Lewis; arXiv 2108.12409).
//
//   s_ij = q_i . k_j / sqrt(D)  -  m_h (i - j),      j <= i
//
// H a power of two:  m_h = 2^(-8 h / H), h = 1..H.
// Otherwise, with c the largest power of two below H: the slopes of c heads, followed by every other slope
// (the 1st, 3rd, 5th, ..) of 2c heads. The extra heads stand at the end.
#include <bit>
#include <cmath>

#include "base/error.h"
#include "position/position.h"

namespace longshot {
namespace {

constexpr double kSteepest = 1000;  // a neighbour then weighs e^-1000 of the token itself: nothing

double slope_of_power_of_two(int64_t heads, int64_t h) {
  return std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads));
}

std::vector<float> paper_slopes(int64_t heads) {
  const auto c = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> slopes;
  for (int64_t h = 0; h < c; ++h) slopes.push_back(static_cast<float>(slope_of_power_of_two(c, h)));
  for (int64_t h = 0; h < heads - c; ++h) slopes.push_back(static_cast<float>(slope_of_power_of_two(2 * c, 2 * h)));
  return slopes;
}

struct AlibiOptions : MethodOptions<AlibiOptions> {
  std::vector<double> slopes;
  bool learned = false;

  void fields(Options& o) override {
    o.add("alibi-slopes", slopes, "slopes, one per head; empty: the paper's");
    o.add("alibi-learned", learned, "train the slopes");
  }
  std::unique_ptr<Position> make(const PositionShape& shape) const override;

  std::vector<float> slopes_of(int64_t heads) const {
    if (slopes.empty()) return paper_slopes(heads);
    for (const double slope : slopes) {
      require_usage(std::abs(slope) <= kSteepest, "--alibi-slopes: {} is not between -{} and {}", slope, kSteepest,
                    kSteepest);
    }
    require_usage(static_cast<int64_t>(slopes.size()) == heads, "--alibi-slopes has {} slopes, the model {} heads",
                  slopes.size(), heads);
    return {slopes.begin(), slopes.end()};
  }
};

class Alibi : public Position {
 public:
  Alibi(const AlibiOptions& options, const PositionShape& shape)
      : learned_(options.learned), fixed_(options.slopes_of(shape.heads)), slopes_(fixed_) {}

  std::vector<PositionTensor> tensors() const override {
    if (!learned_) return {};
    return {{"slopes", {static_cast<int64_t>(fixed_.size())}, [this](int64_t h, double) {
               return fixed_[static_cast<size_t>(h)];
             }}};
  }

  void bind(std::span<const std::span<float>> values, std::span<const std::span<float>> grads) override {
    if (learned_) slopes_ = values[0], d_slopes_ = grads[0];
  }

  DistanceBias bias(int64_t) const override {
    return {.kind = DistanceBias::Kind::kLinear, .slopes = slopes_, .table = {}, .wants_gradient = learned_};
  }

  // b_h(d) = -m_h d   =>   dm_h = -sum_d d * db_h(d)
  void bias_backward(int64_t, ConstMat d_bias) override {
    const int64_t n = d_bias.cols;
    for (int64_t h = 0; h < d_bias.rows; ++h) {
      double sum = 0;
      for (int64_t d = 0; d < n; ++d) sum += static_cast<double>(d) * d_bias(h, n - 1 - d);
      d_slopes_[static_cast<size_t>(h)] -= static_cast<float>(sum);
    }
  }

 private:
  bool learned_;
  std::vector<float> fixed_;  // [H]
  std::span<const float> slopes_;
  std::span<float> d_slopes_;
};

std::unique_ptr<Position> AlibiOptions::make(const PositionShape& shape) const {
  return std::make_unique<Alibi>(*this, shape);
}

}  // namespace

extern const PositionMethod position_alibi{
    .name = "alibi",
    .summary = "linear penalty on distance, one fixed slope per head (arXiv 2108.12409)",
    .options = AlibiOptions::initial,
};

}  // namespace longshot
