// Rotary positions (RoFormer, arXiv 2104.09864). With R <= D rotated dimensions, pair c = 0 .. R/2 - 1 of every
// query and key turns by
//
//   angle(p, c) = p * base^(-2c / R),      (a, b) -> (a cos - b sin, a sin + b cos)
//
// Pairs are neighbours (2c, 2c + 1) in the interleaved style, (c, c + R/2) in the half style. Values stay as they are.
#include "position/rotary.h"

#include <algorithm>
#include <cmath>

#include "base/choice.h"
#include "base/error.h"

namespace longshot {
namespace {

using Style = RotaryOptions::Style;
constexpr Choice<Style> kStyles[] = {{"interleaved", Style::kInterleaved}, {"half", Style::kHalf}};

class Rotary : public Position {
 public:
  Rotary(const RotaryOptions& options, const PositionShape& shape)
      : base_(options.base), interleaved_(options.style == Style::kInterleaved) {
    require_usage(base_ > 1 && std::isfinite(base_), "--rotary-base: {} is not above 1", base_);
    require_usage(options.fraction > 0 && options.fraction <= 1, "--rotary-fraction: {} is not in (0, 1]",
                  options.fraction);
    pairs_ = static_cast<int64_t>(static_cast<double>(shape.head_dim) * options.fraction) / 2;
    require_usage(pairs_ > 0, "--rotary-fraction: {} of head dimension {} leaves no pair to rotate", options.fraction,
                  shape.head_dim);
    cos_ = sin_ = PositionRows(pairs_);
  }

  void prepare(int64_t first, int64_t last) override {
    const auto angle = [this](int64_t p, int64_t c) {
      return static_cast<double>(p) * std::pow(base_, -static_cast<double>(c) / static_cast<double>(pairs_));
    };
    cos_.cover(first, last, [&](int64_t p, float* row) {
      for (int64_t c = 0; c < pairs_; ++c) row[c] = static_cast<float>(std::cos(angle(p, c)));
    });
    sin_.cover(first, last, [&](int64_t p, float* row) {
      for (int64_t c = 0; c < pairs_; ++c) row[c] = static_cast<float>(std::sin(angle(p, c)));
    });
  }

  Rotation rotation() const override {
    return {.cos = cos_.rows(), .sin = sin_.rows(), .interleaved = interleaved_, .first = cos_.first()};
  }

 private:
  double base_;
  bool interleaved_;
  int64_t pairs_ = 0;
  PositionRows cos_, sin_;  // [positions, pairs]
};

}  // namespace

void RotaryOptions::fields(Options& o) {
  o.add("rotary-base", base, "wavelengths grow from 2 pi to 2 pi * base");
  o.add("rotary-fraction", fraction, "share of the head dimension that is rotated");
  o.add("rotary-style", style, kStyles, "pairs: interleaved, 2c and 2c + 1, or half, c and c + D/2");
}

std::unique_ptr<Position> RotaryOptions::make(const PositionShape& shape) const {
  return std::make_unique<Rotary>(*this, shape);
}

extern const PositionMethod position_rotary{
    .name = "rotary",
    .summary = "queries and keys turned by position (arXiv 2104.09864)",
    .options = RotaryOptions::initial,
};

}  // namespace longshot
