// Fixed sinusoids added to the input embeddings (Vaswani et al. 2017), with half = C / 2:
//
//   fairseq    f_k = 10000^(-k / (half - 1));  e_p = [sin(q f_0) .. sin(q f_{half-1}), cos(q f_0) ..],  q = p + 2
//   vaswani    f_k = 10000^(-2k / C);          e_p = [sin(p f_0), cos(p f_0), sin(p f_1), cos(p f_1), ..]
//
// fairseq counts from its padding index 1, so the first token gets row 2. An odd last column is zero.
#include <algorithm>
#include <cmath>

#include "base/choice.h"
#include "position/position.h"

namespace longshot {
namespace {

constexpr int64_t kFairseqFirstRow = 2;

enum class Variant { kFairseq, kVaswani };
constexpr Choice<Variant> kVariants[] = {{"fairseq", Variant::kFairseq}, {"vaswani", Variant::kVaswani}};

struct SinusoidalOptions : MethodOptions<SinusoidalOptions> {
  Variant variant = Variant::kFairseq;
  void fields(Options& o) override {
    o.add("sinusoidal-variant", variant, kVariants, "fairseq is the paper's baseline");
  }
  std::unique_ptr<Position> make(const PositionShape& shape) const override;
};

class Sinusoidal : public Position {
 public:
  Sinusoidal(const SinusoidalOptions& options, const PositionShape& shape)
      : width_(shape.width()), fairseq_(options.variant == Variant::kFairseq), table_(width_) {}

  void prepare(int64_t first, int64_t last) override {
    table_.cover(first, last, [this](int64_t p, float* row) { fill_row(p, row); });
  }

  bool adds_to_input() const override { return true; }
  void add_to_input(Mat x, int64_t first) const override {
    for (int64_t r = 0; r < x.rows; ++r) {
      const float* e = table_.row(first + r);
      for (int64_t c = 0; c < width_; ++c) x(r, c) += e[c];
    }
  }

 private:
  void fill_row(int64_t p, float* row) const {
    const int64_t half = width_ / 2;
    for (int64_t k = 0; k < half; ++k) {
      const double exponent = fairseq_ ? static_cast<double>(k) / static_cast<double>(std::max<int64_t>(half - 1, 1))
                                       : 2.0 * static_cast<double>(k) / static_cast<double>(width_);
      const double angle = static_cast<double>(fairseq_ ? p + kFairseqFirstRow : p) * std::pow(10000.0, -exponent);
      row[fairseq_ ? k : 2 * k] = static_cast<float>(std::sin(angle));
      row[fairseq_ ? half + k : 2 * k + 1] = static_cast<float>(std::cos(angle));
    }
  }

  int64_t width_;
  bool fairseq_;
  PositionRows table_;  // [positions, C]
};

std::unique_ptr<Position> SinusoidalOptions::make(const PositionShape& shape) const {
  return std::make_unique<Sinusoidal>(*this, shape);
}

}  // namespace

extern const PositionMethod position_sinusoidal{
    .name = "sinusoidal",
    .summary = "fixed sines and cosines added to the embeddings (arXiv 1706.03762)",
    .options = SinusoidalOptions::initial,
};

}  // namespace longshot
