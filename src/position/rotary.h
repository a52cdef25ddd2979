// Options of rotary positions, for file formats that have words for them.
#pragma once
#include "position/position.h"

namespace longshot {

struct RotaryOptions : MethodOptions<RotaryOptions> {
  enum class Style { kInterleaved, kHalf };
  double base = 10000, fraction = 1;
  Style style = Style::kInterleaved;

  void fields(Options& o) override;
  std::unique_ptr<Position> make(const PositionShape& shape) const override;
};

}  // namespace longshot
