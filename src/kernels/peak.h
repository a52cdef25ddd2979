// What the machine can do at best, measured: the yardstick of every speed that is reported.
#pragma once

namespace longshot {

// Flops per second of fused multiply-adds on registers only, all threads.
double measure_peak_flops(double seconds = 0.05);
// Bytes per second of a plain read loop over memory much larger than the caches, all threads.
double measure_read_bandwidth();
// The instruction set in use: "AVX2", ..
const char* instruction_set();

}  // namespace longshot
