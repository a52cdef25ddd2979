#include "run/aside_output.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"

namespace longshot {
namespace {

fs::path without_slash(const fs::path& out) {
  const fs::path path = fs::weakly_canonical(fs::absolute(out));
  return path.filename().empty() ? path.parent_path() : path;
}

DirectoryLock locked(const fs::path& out) {
  make_directories(out.parent_path());
  return DirectoryLock::beside(out);
}

}  // namespace

AsideOutput::AsideOutput(const fs::path& out, Kind kind)
    : kind_(kind), out_(without_slash(out)), aside_(out_), lock_(locked(out_)) {
  aside_ += kUnfinished;
  require_free();
}

AsideOutput::AsideOutput(const fs::path& out) : AsideOutput(out, Kind::kFile) {
  require_writable(aside_);
  to_remove_ = true;
}

AsideOutput::AsideOutput(const fs::path& out, const IsName& is_ours) : AsideOutput(out, Kind::kDirectory) {
  remove_left(is_ours);
  make_directories(aside_);
  to_remove_ = true;
}

AsideOutput::~AsideOutput() {
  std::error_code ignored;
  if (to_remove_) fs::remove_all(aside_, ignored);
}

void AsideOutput::publish_it() {
  require_free();  // something may have been put there meanwhile
  publish(aside_, out_);
  to_remove_ = false;
}

void AsideOutput::require_free() const {
  const fs::file_status status = fs::symlink_status(out_);
  const bool empty = kind_ == Kind::kDirectory && fs::is_directory(status) && fs::is_empty(out_);
  require_usage(!fs::exists(status) || empty, "--out {}: is there already and is not replaced. Give another.",
                out_.string());
}

void AsideOutput::remove_left(const IsName& is_ours) const {
  const fs::file_status status = fs::symlink_status(aside_);
  if (!fs::exists(status)) return;
  bool ours = fs::is_directory(status);
  if (ours)
    ours = std::ranges::all_of(fs::directory_iterator(aside_), [&](const fs::directory_entry& entry) {
      const std::string name = entry.path().filename().string();
      return fs::is_regular_file(entry.symlink_status()) && is_ours(name.substr(0, name.find(kUnfinished)));
    });
  require(ours, "{}: the work in progress would go there, but it holds what no export wrote. Move it away.",
          aside_.string());
  fs::remove_all(aside_);
}

}  // namespace longshot
