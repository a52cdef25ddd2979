// One program per target: FUZZ_TARGET is its name.
#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  longshot::fuzz::run(longshot::fuzz::FUZZ_TARGET, {reinterpret_cast<const char*>(data), size});
  return 0;
}
