#include "serve/live_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantity.h"
#include "report/svg.h"
#include "report/text.h"
#include "run/read_run.h"

namespace longshot {
namespace {

constexpr size_t kMostRuns = 200, kMostCurves = 12, kMostPoints = 240, kSpeedRecords = 20;
constexpr double kTrainingSeconds = 120;  // a run whose files changed since is taken to be training

bool is_run(const fs::path& dir) { return fs::exists(RunDir(dir).config()); }
bool is_experiment(const fs::path& dir) { return fs::exists(ExperimentDir(dir).plan()); }

std::vector<fs::path> directories_in(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end && found.size() < 10 * kMostRuns;
       it.increment(error)) {
    if (fs::is_directory(it->path(), error) && !it->path().filename().string().starts_with("."))
      found.push_back(it->path());
  }
  std::ranges::sort(found);
  return found;
}

// Directories of runs in `dir`, itself among them; experiments are looked into.
void find_runs(const fs::path& dir, int depth, std::vector<fs::path>& found) {
  if (found.size() >= kMostRuns) return;
  if (is_run(dir)) return found.push_back(dir);
  if (is_experiment(dir)) return find_runs(ExperimentDir(dir).runs(), 1, found);
  if (depth == 0) return;
  for (const fs::path& inside : directories_in(dir)) find_runs(inside, depth - 1, found);
}

// What tells whether a run has changed, and how long ago that was.
void look_at_files(LiveRun& live) {
  const RunDir run(live.dir);
  fs::file_time_type last{};
  for (const fs::path& path : {run.config(), run.metrics(), run.evals()}) {
    std::error_code error;
    const auto time = fs::last_write_time(path, error);
    const auto size = error ? 0 : fs::file_size(path, error);
    if (error) continue;
    last = std::max(last, time);
    live.files += fmt::format("{} {} {};", path.filename().string(), size, time.time_since_epoch().count());
  }
  live.seconds_since = std::chrono::duration<double>(fs::file_time_type::clock::now() - last).count();
}

OptionalNumber seconds_left(const RunRecord& run) {
  if (run.curve.size() < 2 || !run.planned_steps) return std::nullopt;
  const MetricsRecord& last = run.curve.back();
  const MetricsRecord& before = run.curve[run.curve.size() - std::min(run.curve.size(), kSpeedRecords)];
  const auto steps = static_cast<double>(last.step - before.step);
  if (!last.seconds || !before.seconds || steps <= 0 || *last.seconds <= *before.seconds) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(*run.planned_steps - last.step, 0)) * (*last.seconds - *before.seconds) /
         steps;
}

void read_one(LiveRun& live) {
  live.record.name = live.dir.filename().string();
  try {
    RunRecord record = read_run(RunDir(live.dir)).at(0);
    record.name = live.record.name;
    live.record = std::move(record);
    live.seconds_left = seconds_left(live.record);
  } catch (const std::exception& e) {
    live.error = e.what();
  }
}

const char* state_of(const LiveRun& run) {
  if (!run.error.empty()) return "cannot be read";
  if (run.record.finished()) return "finished";
  return run.seconds_since < kTrainingSeconds ? "training" : "stopped";
}

// At most kMostPoints points, each the mean of its neighbours.
std::vector<ChartPoint> points_of(const RunRecord& run, OptionalNumber MetricsRecord::*field) {
  std::vector<ChartPoint> all;
  for (const MetricsRecord& m : run.curve) {
    if (const OptionalNumber value = m.*field) all.push_back({static_cast<double>(m.step), *value});
  }
  const size_t every = (all.size() + kMostPoints - 1) / kMostPoints;
  if (every <= 1) return all;
  std::vector<ChartPoint> fewer;
  for (size_t first = 0; first < all.size(); first += every) {
    const size_t last = std::min(first + every, all.size());
    ChartPoint mean{all[last - 1].x, 0};
    for (size_t i = first; i < last; ++i) mean.y += all[i].y / static_cast<double>(last - first);
    fewer.push_back(mean);
  }
  return fewer;
}

std::string chart_html(const std::vector<const LiveRun*>& runs, Chart chart, OptionalNumber MetricsRecord::*field) {
  int colour = 0;
  for (const LiveRun* run : runs) {
    Series series{.label = run->record.name, .colour = colour++ % kGrey, .points = points_of(run->record, field)};
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  if (chart.empty()) return "";
  if (chart.y.label.starts_with("loss")) leave_out_start(chart);
  std::string legend;
  for (const Series& s : chart.series)
    legend += fmt::format("<span class=\"entry c{}\">{}{}</span>", s.colour, key_svg(chart, s), escape_html(s.label));
  return fmt::format(
      "<figure class=\"chart\"><h3>{}</h3><div class=\"legend\">{}</div><div class=\"plot\">{}</div><p "
      "class=\"note\">{}</p></figure>\n",
      escape_html(chart.title), legend, chart_svg(chart), escape_html(chart.caption()));
}

std::string number_text(const OptionalNumber& value) { return value ? fmt::format("{:.4f}", *value) : ""; }

std::string row_html(const LiveRun& run) {
  const RunRecord& r = run.record;
  if (!run.error.empty())
    return fmt::format("<tr><th scope=\"row\">{}</th><td colspan=\"8\" class=\"problem\">{}</td></tr>\n",
                       escape_html(r.name), escape_html(run.error));
  MetricsRecord last;
  for (const MetricsRecord& m : r.curve) {
    if (m.loss) last.loss = m.loss;
    if (m.valid_loss) last.valid_loss = m.valid_loss;
    if (m.tokens_per_second) last.tokens_per_second = m.tokens_per_second;
  }
  const int64_t step = r.curve.empty() ? 0 : r.curve.back().step;
  const bool training = std::string_view(state_of(run)) == "training";
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}{}</td><td "
      "class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
      escape_html(r.name), escape_html(method_title(r.position)), r.train_length, state_of(run), step,
      r.planned_steps ? fmt::format(" of {}", *r.planned_steps) : "", number_text(last.loss),
      number_text(last.valid_loss), last.tokens_per_second ? count_text(*last.tokens_per_second) : "",
      training && run.seconds_left ? duration_text(*run.seconds_left) : "");
}

}  // namespace

std::vector<LiveRun> read_live_runs(const std::vector<std::string>& dirs, std::vector<LiveRun> before) {
  std::vector<fs::path> found;
  for (const std::string& dir : dirs) find_runs(dir, 2, found);
  std::vector<LiveRun> runs;
  for (const fs::path& dir : found) {
    LiveRun live{.dir = dir, .record = {}};
    look_at_files(live);
    const auto same = std::ranges::find(before, dir, &LiveRun::dir);
    if (same != before.end() && same->files == live.files) {
      same->seconds_since = live.seconds_since;
      live = std::move(*same);
      before.erase(same);
    } else {
      read_one(live);
    }
    runs.push_back(std::move(live));
  }
  return runs;
}

std::string live_runs_html(const std::vector<LiveRun>& runs) {
  if (runs.empty()) return "<p>No run is there yet.</p>\n";
  std::string out =
      "<div class=\"scroll\" tabindex=\"0\"><table class=\"runs\"><thead><tr><th scope=\"col\">run</th><th "
      "scope=\"col\">method</th><th scope=\"col\" class=\"n\">length</th><th scope=\"col\">state</th><th "
      "scope=\"col\" class=\"n\">step</th><th scope=\"col\" class=\"n\">loss</th><th scope=\"col\" "
      "class=\"n\">validation</th><th scope=\"col\" class=\"n\">tokens/s</th><th scope=\"col\" class=\"n\">time "
      "left</th></tr></thead><tbody>\n";
  for (const LiveRun& run : runs) out += row_html(run);
  out += "</tbody></table></div>\n";
  std::vector<const LiveRun*> shown;
  shown.reserve(runs.size());
  for (const LiveRun& run : runs) shown.push_back(&run);
  std::ranges::stable_sort(shown, {}, [](const LiveRun* run) { return run->seconds_since; });
  if (shown.size() > kMostCurves) {
    out += fmt::format("<p class=\"note\">Curves of the {} runs that changed last.</p>\n", kMostCurves);
    shown.resize(kMostCurves);
  }
  std::ranges::sort(shown, {}, [](const LiveRun* run) { return run->dir; });
  const Axis steps{.label = "training steps"};
  out += "<div class=\"charts\">\n";
  out += chart_html(shown, {.id = "live-loss", .title = "Training loss", .x = steps, .y = {.label = "loss (nats)"}},
                    &MetricsRecord::loss);
  out += chart_html(shown, {.id = "live-valid", .title = "Validation loss", .x = steps, .y = {.label = "loss (nats)"}},
                    &MetricsRecord::valid_loss);
  out += chart_html(shown, {.id = "live-speed", .title = "Speed", .x = steps, .y = {.label = "tokens/s", .least = 0}},
                    &MetricsRecord::tokens_per_second);
  return out + "</div>\n";
}

LiveRuns::LiveRuns(std::vector<std::string> dirs) : dirs_(std::move(dirs)) {
  for (const std::string& dir : dirs_) require_usage(fs::is_directory(dir), "--runs {}: no such directory", dir);
  if (!dirs_.empty()) thread_ = std::thread([this] { read_loop(); });
}

LiveRuns::~LiveRuns() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

LiveRuns::Snapshot LiveRuns::snapshot() {
  Snapshot now;
  {
    const std::lock_guard lock(mutex_);
    asked_ = true;
    now = snapshot_;
  }
  changed_.notify_one();
  return now;
}

void LiveRuns::read_loop() {
  std::vector<LiveRun> runs;
  std::unique_lock lock(mutex_);
  while (!ending_) {
    changed_.wait(lock, [this] { return asked_ || ending_; });
    if (ending_) return;
    asked_ = false;
    lock.unlock();
    const double start = seconds_now();
    std::string html;
    try {
      runs = read_live_runs(dirs_, std::move(runs));
      html = live_runs_html(runs);
    } catch (const std::exception& e) {
      html = fmt::format("<p class=\"problem\">{}</p>\n", escape_html(e.what()));
    }
    const std::chrono::duration<double> pause(std::max(1.0, 4 * (seconds_now() - start)));
    lock.lock();
    if (html != snapshot_.html) snapshot_ = {snapshot_.version + 1, std::move(html)};
    changed_.wait_for(lock, pause, [this] { return ending_; });
  }
}

}  // namespace longshot
