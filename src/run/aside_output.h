// An export on its way: a file or a directory that is written aside, in OUT.tmp/, and takes its place whole or not at all.
#pragma once
#include <functional>
#include <string>

#include "base/lock.h"
#include "run/run_dir.h"

namespace longshot {

// OUT is locked meanwhile, and refused where something is in its place: at the beginning and at the end. What was not
// published is removed. OUT.tmp/ holds a mark beside the export: without it, it is no killed export's and stays.
class AsideOutput {
 public:
  // A file.
  explicit AsideOutput(const fs::path& out);
  // A directory; an empty one may be in its place. Of what a killed export left only files of these names are removed.
  using IsName = std::function<bool(const std::string& name)>;
  AsideOutput(const fs::path& out, const IsName& is_ours);
  ~AsideOutput();
  AsideOutput(const AsideOutput&) = delete;
  AsideOutput& operator=(const AsideOutput&) = delete;

  const fs::path& path() const { return content_; }  // to be written
  void publish_it();

 private:
  enum class Kind { kFile, kDirectory };
  AsideOutput(const fs::path& out, Kind kind, const IsName& is_ours);
  fs::path mark() const;
  void require_free() const;
  bool is_content(const fs::path& path, const IsName& is_ours) const;
  void remove_left(const IsName& is_ours);
  void remove_aside() noexcept;

  Kind kind_;
  fs::path out_, aside_, content_;
  DirectoryLock lock_;
  bool to_remove_ = false;  // what stands at OUT.tmp is this export's
};

}  // namespace longshot
