// Where a command is at this moment, judged by the files it writes; and stopping it there.
#pragma once
#include <functional>
#include <map>
#include <random>

#include "torture/child.h"

namespace torture {

enum class Place { kStart, kStep, kRecord, kCheckpoint, kFile, kPrepare, kEval, kEnd };
constexpr const char* kPlaceNames[] = {"start-up",
                                       "a step or a validation",
                                       "right behind a record of metrics",
                                       "writing a checkpoint",
                                       "writing another file",
                                       "preparing a token set",
                                       "evaluating or reporting",
                                       "end"};

struct Dice {
  explicit Dice(uint64_t seed) : bits(seed) {}
  long below(long n) { return static_cast<long>(bits() % static_cast<uint64_t>(n)); }
  long between(long low, long high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T one_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<long>(list.size())))];
  }
  std::mt19937_64 bits;
};

// What a command works on, and what says that it has begun.
struct Watched {
  fs::path dir;        // where it writes
  long last_step = 0;  // training: the number of steps, after which it is at its end
  std::string mapped;  // evaluation, report: it has begun when this file is mapped; empty: training or prepare
  bool prepares = false;
};

// A moment to strike: the `count`-th time the command is seen at `place`, and `delay` microseconds later.
struct Moment {
  Place place;
  long count;
  long delay;
  int signal;
  bool twice;                               // the signal comes again, a moment later
  std::function<void()> meanwhile = [] {};  // while it stands still
};

struct Struck {
  Place place;  // where it stood when the signal was sent; kEnd: it ended before
  int code;     // as Child::wait
};

// Watches `child` until the moment comes or it ends.
Struck strike(Child& child, const Watched& watched, const Moment& moment, Dice& dice);

}  // namespace torture
