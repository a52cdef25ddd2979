// The records of metrics.jsonl in the form that TensorBoard draws. Written beside them and never read here: what
// counts is metrics.jsonl, and this file is made anew from it whenever a run goes on.
#pragma once
#include <span>
#include <string>

#include "run/metrics.h"

namespace longshot {

class EventFile {
 public:
  explicit EventFile(fs::path path) : path_(std::move(path)) {}
  // The file holds these records and nothing else; without any it is empty, or is not made. It stays the same file, so
  // that a TensorBoard that has it open goes on reading.
  void write(std::span<const MetricsRecord> records);
  void append(const MetricsRecord& record);

 private:
  std::string event_of(const MetricsRecord& record) const;

  fs::path path_;
  // Records know seconds of training, no dates. An event's time is this start plus those seconds; the start is such
  // that the last record is of now. TensorBoard's axis of relative time is then the time trained, without the gaps
  // between one process and the next.
  double started_ = 0;  // seconds since 1970
};

}  // namespace longshot
