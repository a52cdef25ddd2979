// Runs while they train: what their files say, read again as they grow.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "run/results.h"

namespace longshot {

// A run as it stands.
struct LiveRun {
  fs::path dir;
  RunRecord record;
  std::string error{};            // why it cannot be read; the record then has a name alone
  std::string files{};            // sizes and times of its files when they were read
  double seconds_since = 0;       // its files changed
  OptionalNumber seconds_left{};  // of training, at the speed of its last records
};

// The runs in `dirs`: each a run, what `compare` writes, or a directory of such. Of those in `before`, the ones whose files
// have not changed are not read again.
std::vector<LiveRun> read_live_runs(const std::vector<std::string>& dirs, std::vector<LiveRun> before = {});

// A table of them and the curves of those that changed last, as HTML.
std::string live_runs_html(const std::vector<LiveRun>& runs);

// Reads on a thread of its own, at most once a second and a fifth of the time, and only while somebody asks.
class LiveRuns {
 public:
  explicit LiveRuns(std::vector<std::string> dirs);
  ~LiveRuns();
  LiveRuns(const LiveRuns&) = delete;
  LiveRuns& operator=(const LiveRuns&) = delete;

  struct Snapshot {
    int64_t version = 0;  // of the text; another text has another
    std::string html{};
  };
  // As it was read last; a newer one is on its way.
  Snapshot snapshot();

 private:
  void read_loop();

  std::vector<std::string> dirs_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  Snapshot snapshot_;
  bool asked_ = true, ending_ = false;
  std::thread thread_;
};

}  // namespace longshot
