#include "run/run_writer.h"

#include <algorithm>

#include "base/json_fields.h"

namespace longshot {
namespace {

constexpr const char* kConfigMark = "# Longshot: the effective options of this run\n";

}  // namespace

RunWriter::RunWriter(RunDir run) : run_(std::move(run)), events_(run_.events()) {
  made_ = !fs::exists(run_.path());
  make_directories(run_.path());
  lock_ = DirectoryLock::inside(run_.path());
  steps_ = checkpoint_steps(run_);
  check_names();
  records_ = read_metrics_lines(run_);
  try {
    best_ = read_best(run_);
  } catch (const Error& e) {
    fail("{} Remove the file: it is made again from {}.", e.what(), run_.metrics().filename().string());
  }
}

RunWriter::~RunWriter() {
  lock_.reset();
  std::error_code ignored;
  if (!made_) return;
  fs::remove(run_.checkpoints(), ignored);  // only what is empty
  fs::remove(run_.path(), ignored);
}

// With a checkpoint in it a directory is a run, whatever else lies there. Without one, nothing foreign may be in the way.
void RunWriter::check_names() const {
  if (!steps_.empty()) return;
  for (const auto& entry : fs::directory_iterator(run_.path())) {
    const std::string name = entry.path().filename().string();
    require_usage(RunDir::is_name(name), "{}: holds '{}', which is no part of a run. Give a new or an empty directory.",
                  run_.path().string(), name);
  }
  if (!fs::exists(run_.config())) return;
  require_usage(read_text(run_.config()).starts_with(kConfigMark),
                "{}: was not written by Longshot, and there is no run beside it. Give a new or an empty directory.",
                run_.config().string());
}

OptionalNumber RunWriter::valid_loss_at(int64_t step) const {
  OptionalNumber loss;
  for (const MetricsRecord& r : records_) {
    if (r.step == step && r.valid_loss) loss = r.valid_loss;
  }
  return loss;
}

// A process killed before it had moved a checkpoint leaves a branch without any: copies of files that are still here.
// What stands behind a symbolic link is somebody else's.
void RunWriter::sweep_branches() const {
  for (int64_t k = 1; fs::exists(run_.abandoned(k).path()); ++k) {
    const RunDir aside = run_.abandoned(k);
    if (fs::is_symlink(aside.path()) || fs::is_symlink(aside.checkpoints())) continue;
    if (fs::exists(aside.checkpoints()) && !checkpoint_steps(aside).empty()) continue;
    std::error_code ignored;  // of a directory that holds something else
    for (const fs::path& made : {aside.config(), aside.metrics(), aside.events(), aside.best()}) {
      fs::remove(made, ignored);
      fs::remove(fs::path(made) += kUnfinished, ignored);
    }
    fs::remove(aside.checkpoints(), ignored);
    fs::remove(aside.path(), ignored);
  }
}

fs::path RunWriter::begin_at(int64_t step, int64_t keep) {
  keep_ = keep;
  make_subdirectory(run_.checkpoints());
  sweep_checkpoints(run_);
  sweep_branches();
  steps_ = checkpoint_steps(run_);
  fs::path aside = give_up_after(step);
  std::erase_if(records_, [&](const MetricsRecord& r) { return r.step > step; });
  if (fs::exists(run_.metrics())) write_metrics();
  restore_best();
  prune();
  events_.write(records_);
  return aside;
}

void RunWriter::write_metrics() const {
  std::string lines;
  for (const MetricsRecord& r : records_) lines += metrics_line(r).dump() + "\n";
  write_atomically(run_.metrics(), lines);
}

fs::path RunWriter::give_up_after(int64_t step) {
  const auto later = std::ranges::upper_bound(steps_, step);
  if (later == steps_.end()) return {};
  int64_t k = 1;
  while (fs::exists(run_.abandoned(k).path())) ++k;
  const RunDir aside = run_.abandoned(k);
  make_subdirectory(aside.path());
  make_subdirectory(aside.checkpoints());
  for (const auto& [from, to] :
       {std::pair(run_.config(), aside.config()), std::pair(run_.metrics(), aside.metrics())}) {
    if (fs::exists(from)) write_atomically(to, read_text(from));
  }
  EventFile(aside.events()).write(records_);
  if (best_ && best_->step > step) publish(run_.best(), aside.best());
  for (auto at = later; at != steps_.end(); ++at) publish(run_.checkpoint(*at), aside.checkpoint(*at));
  steps_.erase(later, steps_.end());
  return aside.path();
}

// The best of the validated checkpoints that are there. Usually best.json says so already; it does not if its
// checkpoint went with a branch given up, or if the process was killed before it was written.
void RunWriter::restore_best() {
  std::optional<BestRecord> best;
  if (best_ && std::ranges::binary_search(steps_, best_->step)) best = best_;
  for (const int64_t step : steps_) {
    const OptionalNumber loss = valid_loss_at(step);
    if (loss && (!best || *loss < best->valid_loss)) best = {step, *loss};
  }
  if (best_ && best && best->step == best_->step) return;
  std::error_code ignored;
  if (!best) fs::remove(run_.best(), ignored);
  best_ = best;
  if (best) write_best(*best);
}

void RunWriter::write_best(const BestRecord& best) {
  best_ = best;
  write_json(run_.best(), write_fields(best));
}

void RunWriter::write_config(const std::string& toml) { write_atomically(run_.config(), kConfigMark + toml); }

void RunWriter::log(const MetricsRecord& record) {
  append_record(run_.metrics(), metrics_line(record));
  records_.push_back(record);
  events_.append(record);
}

void RunWriter::save(const CheckpointContent& content) {
  save_checkpoint(run_.checkpoint(content.step), content);
  steps_.push_back(content.step);
  prune();
}

void RunWriter::save(const ImportedContent& content) {
  save_checkpoint(run_.checkpoint(content.step), content);
  steps_.push_back(content.step);
}

void RunWriter::prune() {
  for (size_t i = 0; i + static_cast<size_t>(keep_) < steps_.size();) {
    if (best_ && steps_[i] == best_->step) {
      ++i;
      continue;
    }
    remove_checkpoint(run_.checkpoint(steps_[i]));
    steps_.erase(steps_.begin() + static_cast<int64_t>(i));
  }
}

void RunWriter::validated(const MetricsRecord& record) {
  log(record);
  if (record.valid_loss && (!best_ || *record.valid_loss < best_->valid_loss)) {
    write_best({record.step, *record.valid_loss});
    prune();
  }
}

}  // namespace longshot
