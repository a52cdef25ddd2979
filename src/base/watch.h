// How a call that can take seconds says how far it is, and is told to stop.
#pragma once
#include <functional>

#include "base/error.h"

namespace longshot {

// Thrown by a call that was asked to stop and has nothing to return. What it was writing is not there.
class Stopped : public Error {
 public:
  Stopped() : Error("stopped, as asked") {}
};

struct Watch {
  std::function<void(double share)> on_progress = [](double) {};  // of the work, from 0 to 1
  std::function<bool()> should_stop = [] { return false; };

  // Says that a share of the work is done, or throws Stopped.
  void at(double share) const {
    on_progress(share);
    if (should_stop()) throw Stopped();
  }
  // Of a part of the work, from one share to another.
  Watch part(double from, double to) const {
    return {.on_progress = [progress = on_progress, from, to](double share) { progress(from + share * (to - from)); },
            .should_stop = should_stop};
  }
};

}  // namespace longshot
