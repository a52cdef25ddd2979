// The one process that writes a run. It holds the run's lock; readers are not held up by it.
#pragma once
#include <string>
#include <vector>

#include "base/lock.h"
#include "run/checkpoint.h"
#include "run/metrics.h"
#include "run/tensorboard.h"

namespace longshot {

class RunWriter {
 public:
  // Makes the directory if there is none, and locks it. Refuses one that holds files that are no part of a run, or
  // whose records cannot be read. Nothing in it changes yet.
  explicit RunWriter(RunDir run);
  ~RunWriter();
  RunWriter(const RunWriter&) = delete;
  RunWriter& operator=(const RunWriter&) = delete;

  const RunDir& dir() const { return run_; }
  const std::vector<int64_t>& checkpoints() const { return steps_; }      // ascending
  const std::vector<MetricsRecord>& records() const { return records_; }  // the lines of metrics.jsonl
  OptionalNumber valid_loss_at(int64_t step) const;                       // nothing if it was not validated

  // The run stands at `step` and goes on from there: what killed saves left goes, and so do records of later steps.
  // Later checkpoints are a branch given up: they move to abandoned-K, with the records and the options of all of it.
  // Of those that are left and to come, the last `keep` stay, and the best beside them.
  // Returns the branch's directory, or "".
  fs::path begin_at(int64_t step, int64_t keep);

  void write_config(const std::string& toml);
  void log(const MetricsRecord& record);
  void save(const CheckpointContent& content);
  // The first and only one of an imported run.
  void save(const ImportedContent& content);
  // Records a validation of the checkpoint saved last.
  void validated(const MetricsRecord& record);

 private:
  void check_names() const;
  void write_metrics() const;
  void sweep_branches() const;
  fs::path give_up_after(int64_t step);
  void restore_best();
  void prune();
  void write_best(const BestRecord& best);

  RunDir run_;
  bool made_ = false;  // the directory is ours to remove again where nothing came of it
  std::optional<DirectoryLock> lock_;
  std::vector<int64_t> steps_;
  std::vector<MetricsRecord> records_;
  EventFile events_;
  int64_t keep_ = 1;
  std::optional<BestRecord> best_;
};

}  // namespace longshot
