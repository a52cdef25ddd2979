// What the models of an experiment cost in time: measured in turn, several rounds, so that a change in the machine's mood
// meets all of them alike.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/watch.h"
#include "experiment/plan.h"
#include "run/run_dir.h"

namespace longshot {

struct SpeedSubject {
  const ModelPlan& plan;
  fs::path checkpoint;
};

// By name of the plan: a record of training at its length, and one of evaluation at each length it is tested at, in
// non-overlapping windows. Throws Stopped.
std::map<std::string, std::vector<SpeedRecord>> measure_speeds(Context& context, const TokenSet& tokens,
                                                               const std::vector<SpeedSubject>& subjects,
                                                               int64_t rounds, const Watch& watch);

}  // namespace longshot
