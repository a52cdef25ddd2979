// Raw tables behind unicode.h.
#pragma once
#include <cstdint>
#include <vector>

namespace longshot {

struct CodePointRun {  // from `first` to the next run's
  uint32_t first, value;
};
struct LowerStretch {  // first, first + step, .., last; each is as far from its lower case as the first
  uint32_t first, last, step, lower;
};
struct Decomposition {
  uint32_t whole, first, second;  // second is 0 where there is none
};

extern const std::vector<CodePointRun> kClassRuns, kCombiningRuns;
extern const std::vector<LowerStretch> kLowerStretches;
extern const std::vector<Decomposition> kDecompositions, kCompositions;

}  // namespace longshot
