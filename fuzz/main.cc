// One program per target: FUZZ_TARGET is its name.
#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const longshot::fuzz::Target target = longshot::fuzz::targets().at(FUZZ_TARGET);
  longshot::fuzz::run(target, {reinterpret_cast<const char*>(data), size});
  return 0;
}
