// No position information at all; a causal model can still count what it sees.
#include "position/position.h"

namespace longshot {

extern const PositionMethod position_none{
    .name = "none",
    .summary = "nothing: order is only what the causal mask reveals",
    .options = {},
    .make = [](const PositionContext&) { return std::make_unique<Position>(); },
};

}  // namespace longshot
