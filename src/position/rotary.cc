// Rotary positions (RoFormer, arXiv 2104.09864). With R <= D rotated dimensions, pair c = 0 .. R/2 - 1 of every
// query and key turns by
//
//   angle(p, c) = p * base^(-2c / R),      (a, b) -> (a cos - b sin, a sin + b cos)
//
// Pairs are neighbours (2c, 2c + 1) in the interleaved style, (c, c + R/2) in the half style. Values stay as they are.
#include <cmath>

#include "base/error.h"
#include "position/position.h"

namespace longshot {
namespace {

class Rotary : public Position {
 public:
  explicit Rotary(const PositionContext& c) : base_(option_number(c, "base")) {
    const double fraction = option_number(c, "fraction");
    const std::string& style = c.options.at("style");
    require_usage(base_ > 1 && std::isfinite(base_), "--rotary-base: {} is not above 1", base_);
    require_usage(fraction > 0 && fraction <= 1, "--rotary-fraction: {} is not in (0, 1]", fraction);
    require_usage(style == "interleaved" || style == "half", "--rotary-style: '{}' is neither interleaved nor half",
                  style);
    interleaved_ = style == "interleaved";
    pairs_ = static_cast<int64_t>(static_cast<double>(c.head_dim) * fraction) / 2;
    require_usage(pairs_ > 0, "--rotary-fraction: {} of head dimension {} leaves no pair to rotate", fraction,
                  c.head_dim);
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
  bool interleaved_ = true;
  int64_t pairs_ = 0;
  PositionRows cos_, sin_;  // [positions, pairs]
};

}  // namespace

extern const PositionMethod position_rotary{
    .name = "rotary",
    .summary = "queries and keys turned by position (arXiv 2104.09864)",
    .options = {{"base", "10000", "wavelengths grow from 2 pi to 2 pi * base"},
                {"fraction", "1", "share of the head dimension that is rotated"},
                {"style", "interleaved", "pairs: interleaved (2c, 2c+1) or half (c, c + D/2)"}},
    .make = [](const PositionContext& c) -> std::unique_ptr<Position> { return std::make_unique<Rotary>(c); },
};

}  // namespace longshot
