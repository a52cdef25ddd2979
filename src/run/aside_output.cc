#include "run/aside_output.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/files.h"

namespace longshot {
namespace {

constexpr const char *kMark = ".longshot-export", *kContent = "export";

fs::path without_slash(const fs::path& out) {
  const fs::path path = fs::weakly_canonical(fs::absolute(out));
  return path.filename().empty() ? path.parent_path() : path;
}

DirectoryLock locked(const fs::path& out) {
  make_directories(out.parent_path());
  return DirectoryLock::beside(out);
}

[[noreturn]] void refuse(const fs::path& out) {
  fail_usage("--out {}: is there already and is not replaced. Give another.", out.string());
}

bool is_plain_file(const fs::path& path) { return fs::is_regular_file(fs::symlink_status(path)); }

// A name as it is, or as it is while the file is being written.
bool is_ours_or_unfinished(const std::string& name, const AsideOutput::IsName& is_ours) {
  const size_t ending = std::string_view(kUnfinished).size();
  return is_ours(name) || (name.ends_with(kUnfinished) && is_ours(name.substr(0, name.size() - ending)));
}

}  // namespace

AsideOutput::AsideOutput(const fs::path& out, Kind kind, const IsName& is_ours)
    : kind_(kind), out_(without_slash(out)), aside_(out_), lock_(locked(out_)) {
  aside_ += kUnfinished;
  content_ = aside_ / kContent;
  require_free();
  remove_left(is_ours);
  make_subdirectory(aside_);
  to_remove_ = true;
  OutputFile(mark()).close();
  if (kind_ == Kind::kDirectory) make_subdirectory(content_);
}

AsideOutput::AsideOutput(const fs::path& out) : AsideOutput(out, Kind::kFile, nullptr) {}

AsideOutput::AsideOutput(const fs::path& out, const IsName& is_ours) : AsideOutput(out, Kind::kDirectory, is_ours) {}

AsideOutput::~AsideOutput() {
  if (to_remove_) remove_aside();
}

fs::path AsideOutput::mark() const { return aside_ / kMark; }

// Something may have been put into its place meanwhile.
void AsideOutput::publish_it() {
  require_free();
  if (kind_ == Kind::kDirectory) return publish(content_, out_);  // replaces nothing but an empty directory
  const int failed = ::renameat2(AT_FDCWD, content_.c_str(), AT_FDCWD, out_.c_str(), RENAME_NOREPLACE);
  if (failed == 0) return sync_file(out_.parent_path());
  if (errno == EEXIST) refuse(out_);
  publish(content_, out_);  // not every file system knows how to leave what is there
}

void AsideOutput::require_free() const {
  const fs::file_status status = fs::symlink_status(out_);
  const bool empty = kind_ == Kind::kDirectory && fs::is_directory(status) && fs::is_empty(out_);
  if (fs::exists(status) && !empty) refuse(out_);
}

// What an export of this kind makes, whole or in part.
bool AsideOutput::is_content(const fs::path& path, const IsName& is_ours) const {
  if (path.filename() != kContent) return false;
  if (kind_ == Kind::kFile) return is_plain_file(path);
  return fs::is_directory(fs::symlink_status(path)) &&
         std::ranges::all_of(fs::directory_iterator(path), [&](const fs::directory_entry& entry) {
           return is_plain_file(entry.path()) && is_ours_or_unfinished(entry.path().filename().string(), is_ours);
         });
}

void AsideOutput::remove_left(const IsName& is_ours) {
  const fs::file_status status = fs::symlink_status(aside_);
  if (!fs::exists(status)) return;
  const bool ours = fs::is_directory(status) && (is_plain_file(mark()) || fs::is_empty(aside_)) &&
                    std::ranges::all_of(fs::directory_iterator(aside_), [&](const fs::directory_entry& entry) {
                      return entry.path() == mark() || is_content(entry.path(), is_ours);
                    });
  require(ours, "{}: the work in progress would go there, but it holds what no export wrote. Move it away.",
          aside_.string());
  remove_aside();
}

// The mark goes last: a kill meanwhile leaves what is known to be ours.
void AsideOutput::remove_aside() noexcept {
  std::error_code ignored;
  fs::remove_all(content_, ignored);
  fs::remove(mark(), ignored);
  fs::remove(aside_, ignored);
}

}  // namespace longshot
