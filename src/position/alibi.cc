// ALiBi: attention with linear biases (Press, Smith, Lewis; arXiv 2108.12409).
//
//   s_ij = q_i . k_j / sqrt(D)  -  m_h (i - j),      j <= i
//
// H a power of two:  m_h = 2^(-8 h / H), h = 1..H.
// Otherwise, with c the largest power of two below H: the slopes of c heads, followed by every other slope
// (the 1st, 3rd, 5th, ..) of 2c heads. The extra heads stand at the end.
//
// A trained model may run with flatter slopes on texts longer than its training length L. With the factor a:
//
//   linear    m_h / a                                                                        (arXiv 2310.13017)
//   ntk       m_h a^(-w_h),   w_h = ln(m_max / m_h) / ln(m_max / m_min): (h - 1) / (H - 1) for the slopes above.
//             The steepest stays, the flattest is divided by a; where all are alike, so are they.
//   dynamic   ntk with a_i = max(1, a (i + 1) / L - (a - 1)) for the query at position i, whatever comes behind it
//
// ntk and dynamic leave slopes of 0 and below alone.
#include "position/alibi.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/choice.h"
#include "base/error.h"

namespace longshot {
namespace {

constexpr double kSteepest = 1000;  // a neighbour then weighs e^-1000 of the token itself: nothing
constexpr double kMostScaling = 65536;

using Scaling = AlibiOptions::Scaling;
constexpr Choice<Scaling> kScalings[] = {
    {"none", Scaling::kNone}, {"linear", Scaling::kLinear}, {"ntk", Scaling::kNtk}, {"dynamic", Scaling::kDynamic}};

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

void check_scaling(const AlibiOptions& o) {
  const char* name = name_of(kScalings, o.scaling);
  require_usage(o.scaling != Scaling::kNone || o.factor == 1, "--alibi-scaling-factor {} needs --alibi-scaling",
                o.factor);
  const bool may_be_one = o.scaling == Scaling::kNone || o.scaling == Scaling::kDynamic;
  require_usage((may_be_one ? o.factor >= 1 : o.factor > 1) && o.factor <= kMostScaling,
                "--alibi-scaling-factor: {} is not {} 1 and at most {}, as --alibi-scaling {} needs it. It is the "
                "length to be reached over the training length, e.g. 4",
                o.factor, may_be_one ? "at least" : "above", kMostScaling, name);
}

// w_h above; 0 for slopes that are not positive.
std::vector<double> flatness(std::span<const float> slopes) {
  double least = HUGE_VAL, most = 0;
  for (const float m : slopes)
    if (m > 0) least = std::min<double>(least, m), most = std::max<double>(most, m);
  std::vector<double> flat;
  for (const float m : slopes)
    flat.push_back(m <= 0 ? 0 : most == least ? 1 : std::log(most / m) / std::log(most / least));
  return flat;
}

class Alibi : public Position {
 public:
  Alibi(const AlibiOptions& options, const PositionShape& shape)
      : learned_(options.learned),
        scaling_(options.scaling),
        factor_(options.factor),
        train_length_(static_cast<double>(shape.train_length)),
        fixed_(options.slopes_of(shape.heads)),
        slopes_(fixed_),
        by_query_(shape.heads) {
    check_scaling(options);
    scale_slopes();
  }

  std::vector<PositionTensor> tensors() const override {
    if (!learned_) return {};
    return {{"slopes", {static_cast<int64_t>(fixed_.size())}, [this](int64_t h, double) {
               return fixed_[static_cast<size_t>(h)];
             }}};
  }

  void bind(Tensors values) override {
    if (learned_) slopes_ = values[0];
  }

  void prepare(int64_t first, int64_t last) override {
    scale_slopes();
    if (scaling_ != Scaling::kDynamic) return;
    by_query_.cover(first, last, [this](int64_t p, float* row) {
      const double reached = factor_ * static_cast<double>(p + 1) / train_length_ - (factor_ - 1);
      for (size_t h = 0; h < slopes_.size(); ++h) row[h] = scaled(h, std::max(1.0, reached));
    });
  }

  DistanceBias bias(int64_t) const override {
    DistanceBias bias{.kind = DistanceBias::Kind::kLinear, .slopes = slopes_};
    bias.wants_gradient = learned_ && scaling_ == Scaling::kNone;
    if (!scaled_.empty()) bias.slopes = scaled_;
    if (scaling_ == Scaling::kDynamic) bias.query_slopes = by_query_.rows(), bias.first = by_query_.first();
    return bias;
  }

  // b_h(d) = -m_h d   =>   dm_h = -sum_d d * db_h(d)
  void bias_backward(int64_t, ConstMat d_bias, Tensors grads) const override {
    const int64_t n = d_bias.cols;
    for (int64_t h = 0; h < d_bias.rows; ++h) {
      double sum = 0;
      for (int64_t d = 0; d < n; ++d) sum += static_cast<double>(d) * d_bias(h, n - 1 - d);
      grads[0][static_cast<size_t>(h)] -= static_cast<float>(sum);
    }
  }

 private:
  // m_h a^(-w_h)
  float scaled(size_t h, double a) const { return static_cast<float>(slopes_[h] * std::pow(a, -flatness_[h])); }

  void scale_slopes() {
    if (scaling_ == Scaling::kNone) return;
    flatness_ = scaling_ == Scaling::kLinear ? std::vector<double>(slopes_.size(), 1) : flatness(slopes_);
    scaled_.clear();
    for (size_t h = 0; h < slopes_.size() && scaling_ != Scaling::kDynamic; ++h) scaled_.push_back(scaled(h, factor_));
  }

  bool learned_;
  Scaling scaling_;
  double factor_, train_length_;
  std::vector<float> fixed_;  // [H]
  std::span<const float> slopes_;
  std::vector<double> flatness_;  // [H] w
  std::vector<float> scaled_;     // [H] linear, ntk
  PositionRows by_query_;         // [positions, H] dynamic
};

}  // namespace

void AlibiOptions::fields(Options& o) {
  o.add("alibi-slopes", slopes, "slopes, one per head; empty: the paper's");
  o.add("alibi-learned", learned, "train the slopes");
}

void AlibiOptions::running_fields(Options& o) {
  o.add("alibi-scaling", scaling, kScalings,
        "flatter slopes than in training: linear, all; ntk, the flat ones; dynamic, those by the query's position");
  o.add("alibi-scaling-factor", factor,
        "by so much, e.g. 4 for 4 times the training length; dynamic: 1 follows the length, more runs ahead of it");
}

std::unique_ptr<Position> AlibiOptions::make(const PositionShape& shape) const {
  return std::make_unique<Alibi>(*this, shape);
}

std::vector<float> AlibiOptions::slopes_of(int64_t heads) const {
  if (slopes.empty()) return paper_slopes(heads);
  for (const double slope : slopes) {
    require_usage(std::abs(slope) <= kSteepest, "--alibi-slopes: {} is not between -{} and {}", slope, kSteepest,
                  kSteepest);
  }
  require_usage(static_cast<int64_t>(slopes.size()) == heads, "--alibi-slopes has {} slopes, the model {} heads",
                slopes.size(), heads);
  return {slopes.begin(), slopes.end()};
}

//   2^(-M h / H) = (2^(-8 h / H))^(M / 8), also where H is no power of two
std::vector<double> alibi_slopes(int64_t heads, double max) {
  std::vector<double> slopes;
  for (const float m : paper_slopes(heads)) slopes.push_back(std::pow(m, max / kPaperAlibiMax));
  return slopes;
}

std::optional<double> alibi_max(std::span<const float> slopes) {
  const auto heads = static_cast<int64_t>(slopes.size());
  // Six digits of what the first slope says; the others agree, or there is no such M.
  const double said = kPaperAlibiMax * std::log2(slopes[0]) / std::log2(paper_slopes(heads)[0]);
  if (!(said > 0) || !std::isfinite(said)) return {};
  const double max = std::stod(fmt::format("{:.6g}", said));
  const auto equal = [](float given, double made) { return given == static_cast<float>(made); };
  return std::ranges::equal(slopes, alibi_slopes(heads, max), equal) ? std::optional(max) : std::nullopt;
}

extern const PositionMethod position_alibi{
    .name = "alibi",
    .summary = "linear penalty on distance, one fixed slope per head (arXiv 2108.12409)",
    .options = AlibiOptions::initial,
};

}  // namespace longshot
