#include "base/load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace longshot {
namespace {

struct CoreTimes {
  double all = 0, busy = 0;  // seconds of all cores together
};

// /proc/stat: "cpu  user nice system idle iowait irq softirq steal ..", in ticks.
CoreTimes core_times() {
  std::ifstream in("/proc/stat");
  std::string name;
  in >> name;
  CoreTimes times;
  const auto tick = static_cast<double>(::sysconf(_SC_CLK_TCK));
  double ticks = 0;
  for (int field = 0; field < 8 && in >> ticks; ++field) {
    const bool idle = field == 3 || field == 4;
    times.all += ticks / tick;
    if (!idle) times.busy += ticks / tick;
  }
  return times;
}

double own_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

LoadMeter::LoadMeter() {
  const CoreTimes now = core_times();
  all_ = now.all, busy_ = now.busy, own_ = own_seconds();
}

std::optional<double> LoadMeter::others() const {
  const CoreTimes now = core_times();
  const double all = now.all - all_;
  if (all <= 0) return std::nullopt;
  return std::clamp((now.busy - busy_ - (own_seconds() - own_)) / all, 0.0, 1.0);
}

}  // namespace longshot
