// What the machine can do at best, measured: the yardstick of every speed that is reported.
#pragma once
#include <string>
#include <vector>

#include "base/context.h"

namespace longshot {

// What a loop of fused multiply-adds in registers alone reaches over all threads, in flops a second: in its best
// 40 microseconds or so, and on average. They differ where others use the same cores.
struct FmaRate {
  double peak, mean;
};
FmaRate measure_fma_rate(const Context& context, double seconds);

// Flops per second of fused multiply-adds on registers only, all threads.
double measure_peak_flops(const Context& context, double seconds = 0.05);
// The same of what multiplies bf16 here: VDPBF16PS on registers, TDPBF16PS on tiles, or the FMAs of rounded floats.
double measure_bf16_peak_flops(const Context& context, double seconds = 0.05);
// Bytes per second of a plain read loop over memory much larger than the caches, all threads.
double measure_read_bandwidth(const Context& context);
// The instruction set in use: "AVX2", ..
const char* instruction_set();

// The instructions that products of this context use: "AVX3", "AVX3, bf16 by AMX tiles".
std::string arithmetic(const Context& context);

// Those that this CPU and this program have, the best first.
std::vector<std::string> instruction_sets();
// While it lives, all kernels use this one of instruction_sets(). For measurements and tests: no kernel may be running in
// another thread when it begins or ends.
class ForcedInstructionSet {
 public:
  explicit ForcedInstructionSet(const std::string& name);
  ForcedInstructionSet(const ForcedInstructionSet&) = delete;
  ForcedInstructionSet& operator=(const ForcedInstructionSet&) = delete;
  ~ForcedInstructionSet();
};

}  // namespace longshot
