// What a test computes on when it does not matter.
#pragma once
#include "base/context.h"

namespace longshot {

inline Context& test_context() {
  static Context context;
  return context;
}

}  // namespace longshot
