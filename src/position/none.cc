// No position information at all; a causal model can still count what it sees.
#include "position/position.h"

namespace longshot {
namespace {

struct NoneOptions : MethodOptions<NoneOptions> {
  std::unique_ptr<Position> make(const PositionShape&) const override { return std::make_unique<Position>(); }
};

}  // namespace

extern const PositionMethod position_none{
    .name = "none",
    .summary = "nothing: order is only what the causal mask reveals",
    .options = NoneOptions::initial,
};

}  // namespace longshot
