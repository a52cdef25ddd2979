#include "data/prepare_output.h"

#include <fcntl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "data/token_set_dir.h"

namespace longshot {
namespace {

// The object in a file; null if there is none.
Json object_in(const fs::path& path) {
  if (!fs::is_regular_file(fs::symlink_status(path))) return {};
  try {
    const Json json = read_json(path);
    return json.is_object() ? json : Json();
  } catch (const Error&) {
    return {};
  }
}

bool is_meta(const fs::path& path) {
  const Json json = object_in(path);
  return json.contains("longshot") && json.contains("splits") && json.contains("tokenizer");
}

bool is_job(const fs::path& path) { return object_in(path).contains("identity"); }

// Splits that meta.json or job.json names, and those that a cut makes.
std::set<std::string> splits_of(const TokenSetDir& set) {
  std::set<std::string> names{"train", "valid", "test"};
  for (const fs::path& file : {set.meta(), set.job()}) {
    const Json json = object_in(file);
    if (!json.contains("splits") || !json["splits"].is_object()) continue;
    for (const auto& [split, counts] : json["splits"].items()) names.insert(split);
  }
  return names;
}

// The files of a directory that Longshot did not make. One of ours is known by its meta.json or job.json; in it, what is ours
// is known by its whole name.
std::vector<std::string> foreign_files(const fs::path& dir) {
  const TokenSetDir set(dir);
  const bool ours = is_meta(set.meta()) || is_job(set.job());
  const std::set<std::string> names = TokenSetDir::names(splits_of(set));
  std::vector<std::string> foreign;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const bool plain = fs::is_regular_file(entry.symlink_status());
    const bool first = TokenSetDir::is_first_name(name);  // killed before there was anything else
    if (!plain || !(first || (ours && (names.contains(name) || TokenSetDir::is_pipe_name(name)))))
      foreign.push_back(printable(name));
  }
  std::ranges::sort(foreign);
  if (foreign.size() > 5) foreign.resize(5), foreign.emplace_back("..");
  return foreign;
}

// REQUIRES: it has no foreign files. What tells that it is ours goes last.
void remove_ours(const fs::path& dir) {
  const TokenSetDir set(dir);
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    if (entry.path() != set.meta() && entry.path() != set.job()) fs::remove(entry.path());
  }
  fs::remove(set.meta());
  fs::remove(set.job());
}

fs::path full_path(const fs::path& out) {
  require_usage(!out.empty(), "--out DIR is needed: where the token set goes");
  fs::path path = fs::weakly_canonical(fs::absolute(out));
  if (path.filename().empty()) path = path.parent_path();
  const fs::path here = fs::current_path();
  const auto [end, rest] = std::ranges::mismatch(path, here);
  require_usage(end != path.end() && path.has_relative_path(),
                "--out {}: is the current directory or one above it. Name a directory of its own.", out.string());
  return path;
}

bool is_inside(const fs::path& path, const fs::path& dir) {
  const auto [end, rest] = std::ranges::mismatch(dir, path);
  return end == dir.end();
}

fs::path with_suffix(fs::path path, const char* suffix) { return path += suffix; }

}  // namespace

PreparePlace::PreparePlace(const fs::path& to) : out(full_path(to)), partial(with_suffix(out, ".partial")) {}

PrepareOutput::PrepareOutput(const PreparePlace& place, bool overwrite)
    : out_(place.out),
      partial_(place.partial),
      overwrite_(overwrite),
      lock_((make_directories(out_.parent_path()), DirectoryLock::beside(out_))) {
  require_replaceable();
  const fs::file_status status = fs::symlink_status(partial_);
  if (!fs::exists(status)) return;
  require(fs::is_directory(status), "{}: not a directory. The work in progress would go there; move it away.",
          partial_.string());
  const std::vector<std::string> foreign = foreign_files(partial_);
  require(foreign.empty(),
          "{}: the work in progress would go there, but it holds what Longshot did not make: {}. Move it away.",
          partial_.string(), fmt::join(foreign, ", "));
}

fs::path PrepareOutput::job_file(const fs::path& partial) { return TokenSetDir(partial).job(); }

void PrepareOutput::require_replaceable() const {
  const fs::file_status status = fs::symlink_status(out_);
  if (!fs::exists(status)) return;
  require_usage(fs::is_directory(status), "--out {}: is there and is not a directory", out_.string());
  if (fs::is_empty(out_)) return;
  const std::vector<std::string> foreign = foreign_files(out_);
  require_usage(foreign.empty(),
                "--out {}: holds what is not of a token set ({}) and is not replaced. Choose another directory.",
                out_.string(), fmt::join(foreign, ", "));
  require_usage(overwrite_, "--out {}: holds a token set. --overwrite replaces it.", out_.string());
}

void PrepareOutput::require_outside(const fs::path& input) const {
  if (!fs::is_regular_file(input)) return;  // a pipe lies nowhere
  const fs::path path = fs::canonical(input);
  for (const fs::path& dir : {out_, partial_}) {
    require_usage(!is_inside(path, dir), "{}: is an input and lies in {}, which is replaced. Choose another --out.",
                  input.string(), dir.string());
  }
}

Json PrepareOutput::unfinished() const { return is_job(job_file()) ? object_in(job_file()) : Json(); }

void PrepareOutput::start_anew(const Json& job) {
  if (fs::exists(partial_)) remove_ours(partial_);
  make_directories(partial_);
  save(job);
}

void PrepareOutput::publish_set() {
  require_replaceable();  // something may have been put there meanwhile
  fs::remove(job_file());
  if (!fs::exists(out_) || fs::is_empty(out_)) return publish(partial_, out_);
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, out_.c_str(), RENAME_EXCHANGE) == 0) {
    remove_ours(partial_);
    fs::remove(partial_);
  } else {  // not every file system can exchange
    remove_ours(out_);
    publish(partial_, out_);
  }
}

}  // namespace longshot
