// Where `prepare` writes: OUT.partial while the work goes on, OUT when it is whole. Nothing is removed but what
// Longshot made, which it knows file by file.
#pragma once
#include "base/files.h"
#include "base/lock.h"
#include "base/records.h"

namespace longshot {

// Without links, and without a slash behind: what stands beside OUT does so in the same place.
struct PreparePlace {
  explicit PreparePlace(const fs::path& to);
  fs::path out, partial;
};

class PrepareOutput {
 public:
  // Takes the lock. Throws if OUT is not free, or holds a token set and `overwrite` is not said, or holds anything else.
  PrepareOutput(const PreparePlace& place, bool overwrite);

  const fs::path& out() const { return out_; }
  const fs::path& partial() const { return partial_; }
  fs::path job_file() const { return job_file(partial_); }
  static fs::path job_file(const fs::path& partial);

  // Throws if one of the inputs is in OUT or OUT.partial.
  void require_outside(const fs::path& input) const;
  // What job.json says of unfinished work; null where there is none.
  Json unfinished() const;
  // OUT.partial, empty but for a job.json.
  void start_anew(const Json& job);
  void save(const Json& job) const { write_json(job_file(), job); }
  // OUT.partial becomes OUT; the set that was there goes.
  void publish_set();

 private:
  void require_replaceable() const;
  fs::path out_, partial_;
  bool overwrite_;
  DirectoryLock lock_;
};

}  // namespace longshot
