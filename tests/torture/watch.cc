#include "torture/watch.h"

#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "torture/checks.h"

namespace torture {
namespace {

void pause(long microseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
  if (microseconds > 500) std::this_thread::sleep_for(std::chrono::microseconds(microseconds - 200));
  while (std::chrono::steady_clock::now() < end) {
  }
}

// The last complete record's step.
long last_step(const fs::path& metrics) {
  std::ifstream in(metrics);
  long step = 0;
  for (std::string line; std::getline(in, line);) {
    if (const size_t at = line.find("\"step\":"); at != std::string::npos)
      step = std::strtol(line.c_str() + at + 7, nullptr, 10);
  }
  return step;
}

class Watch {
 public:
  Watch(const Child& child, const Watched& watched) : child_(child), watched_(watched) {
    for (const fs::path& path : half_written(watched_.dir)) left_over_.insert(inode(path));
    grown();
  }

  Place look() {
    if (watched_.prepares) {
      fs::path partial = watched_.dir;
      partial += ".partial";
      return fs::exists(partial) ? Place::kPrepare : Place::kStart;
    }
    for (const fs::path& path : half_written(watched_.dir)) {
      if (left_over_.contains(inode(path))) continue;
      begun_ = true;
      return path.string().find("/checkpoints/") != std::string::npos ? Place::kCheckpoint : Place::kFile;
    }
    if (!watched_.mapped.empty()) return child_.maps(watched_.mapped) ? Place::kEval : Place::kStart;
    if (grown()) {
      begun_ = true;
      return Place::kRecord;
    }
    if (!begun_) return Place::kStart;
    return last_step(newest_) >= watched_.last_step ? Place::kEnd : Place::kStep;
  }

 private:
  // Has any metrics.jsonl below become longer since the last call?
  bool grown() {
    bool any = false;
    for (const fs::path& run : runs()) {
      std::error_code absent;
      const fs::path metrics = run / "metrics.jsonl";
      const auto size = fs::file_size(metrics, absent);
      if (absent) continue;
      auto& before = sizes_[metrics.string()];
      if (size > before) any = true, newest_ = metrics;
      before = size;
    }
    return any;
  }

  std::vector<fs::path> runs() const {
    std::vector<fs::path> out{watched_.dir};
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(watched_.dir / "runs", absent)) out.push_back(entry.path());
    return out;
  }

  static ino_t inode(const fs::path& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
  }

  const Child& child_;
  const Watched& watched_;
  std::set<ino_t> left_over_;  // what an earlier process left half-written
  std::map<std::string, uintmax_t> sizes_;
  fs::path newest_;
  bool begun_ = false;
};

// Work that goes on for a while: every look at it counts, of the other places every arrival.
bool lasts(Place place) { return place == Place::kStep || place == Place::kPrepare || place == Place::kEval; }

}  // namespace

Struck strike(Child& child, const Watched& watched, const Moment& moment, Dice& dice) {
  Watch watch(child, watched);
  Place before = Place::kStart;
  for (long seen = 0; !child.ended();) {
    const Place now = watch.look();
    if (now == moment.place && (now != before || lasts(now))) ++seen;
    before = now;
    if (seen < moment.count) continue;
    pause(moment.delay);
    if (!child.freeze()) break;
    Place place = watch.look();
    if (place == Place::kStep || place == Place::kRecord)
      place = moment.place == Place::kRecord ? Place::kRecord : Place::kStep;
    moment.meanwhile();
    child.send(moment.signal);
    if (moment.signal != SIGKILL) child.go_on();
    if (moment.twice) {
      pause(dice.below(3000));
      if (!child.ended()) child.send(moment.signal);
    }
    return {place, child.wait()};
  }
  return {Place::kEnd, child.wait()};
}

}  // namespace torture
