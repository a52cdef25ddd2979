#include "torture/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "run/event_reader.h"

namespace torture {
namespace {

using Json = nlohmann::json;

void expect(bool holds, const std::string& fault) {
  if (!holds) throw Fault(fault);
}

// Fields that no two executions share.
bool depends_on_time(const std::string& name) {
  constexpr const char* kParts[] = {"seconds", "per_second", "memory", "date", "command", "machine", "time", "speeds"};
  return std::ranges::any_of(kParts, [&](const char* part) { return name.find(part) != std::string::npos; });
}

void strip(Json& json) {
  if (json.is_object()) {
    for (auto it = json.begin(); it != json.end();) {
      if (depends_on_time(it.key())) {
        it = json.erase(it);
      } else {
        strip(it.value());
        ++it;
      }
    }
  } else if (json.is_array()) {
    for (Json& item : json) strip(item);
  }
}

std::string without(std::string text, const fs::path& dir) {
  const std::string name = dir.string();
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;) text.replace(at, name.size(), "DIR");
  return text;
}

std::vector<Json> records(const std::string& text, const fs::path& path) {
  std::vector<Json> out;
  try {
    if (path.extension() != ".jsonl") {
      out.push_back(Json::parse(text));
    } else {
      expect(text.empty() || text.back() == '\n', path.string() + ": the last line is torn");
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
    }
  } catch (const Json::exception& e) {
    throw Fault(fmt::format("{}: {}", path.string(), e.what()));
  }
  for (Json& record : out) strip(record);
  return out;
}

fs::path checkpoint(const fs::path& run, long step) { return run / fmt::format("checkpoints/step-{:08}", step); }

void expect_same_checkpoint(const fs::path& twin, const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(twin)) {
    const fs::path other = dir / entry.path().filename();
    expect(fs::exists(other), other.string() + " is missing");
    if (other.filename() == "state.json") {
      expect_same_records(entry.path(), other, twin, dir);
    } else {
      expect(read(entry.path()) == read(other),
             fmt::format("{} differs from {}", other.string(), entry.path().string()));
    }
  }
}

// Names relative to `dir`; those of checkpoints without their steps. Evaluations are not the training's, and branches
// given up by --resume-step are kept on purpose.
std::set<std::string> listing(const fs::path& dir) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    std::string name = entry.path().lexically_relative(dir).string();
    if (const size_t at = name.find("/step-"); at != std::string::npos) name.replace(at + 6, 8, "N");
    if (!name.ends_with("evals.jsonl") && name.find("abandoned-") == std::string::npos) names.insert(name);
  }
  return names;
}

void expect_same_listing(const fs::path& twin, const fs::path& dir) {
  const std::set<std::string> want = listing(twin), got = listing(dir);
  std::vector<std::string> differ;
  std::ranges::set_symmetric_difference(want, got, std::back_inserter(differ));
  expect(differ.empty(),
         fmt::format("{} holds other files than {}: {}", dir.string(), twin.string(), fmt::join(differ, ", ")));
}

// TensorBoard's file says what metrics.jsonl says, for every record one event.
void expect_same_events(const fs::path& run) {
  static const std::map<std::string, std::string> kTags{{"loss", "loss/train"},
                                                        {"valid_loss", "loss/valid"},
                                                        {"lr", "schedule/lr"},
                                                        {"gradient_norm", "gradient_norm"},
                                                        {"tokens_per_second", "tokens_per_second"}};
  const fs::path file = run / "events.out.tfevents.longshot";
  std::vector<event_reader::Event> events;
  try {
    events = event_reader::read_events(read(file));
  } catch (const std::runtime_error& e) {
    throw Fault(fmt::format("{}: {}", file.string(), e.what()));
  }
  std::istringstream lines(read(run / "metrics.jsonl"));
  size_t at = 1;  // behind the version
  for (std::string line; std::getline(lines, line); ++at) {
    const Json record = Json::parse(line);
    expect(at < events.size(), fmt::format("{} ends before metrics.jsonl", file.string()));
    std::map<std::string, float> scalars;
    for (const auto& [name, tag] : kTags)
      if (record.contains(name)) scalars[tag] = record[name].get<float>();
    for (const Json& there : record.value("valid_losses", Json::array()))
      scalars[fmt::format("loss/valid at {}", there["length"].get<long>())] = there["loss"].get<float>();
    expect(events[at].step == record["step"].get<int64_t>() && events[at].scalars == scalars,
           fmt::format("{}: event {} is not that of {}", file.string(), at, line));
  }
  expect(at == events.size(),
         fmt::format("{}: {} events, metrics.jsonl has {} lines", file.string(), events.size() - 1, at - 1));
}

// What --resume-step gave up: its checkpoints, where the twin has them too, are the twin's.
void expect_part_of(const fs::path& twin, const fs::path& abandoned) {
  const std::vector<long> all = checkpoints(twin);
  expect(!checkpoints(abandoned).empty(), abandoned.string() + " holds no checkpoint");
  for (const long step : checkpoints(abandoned)) {
    if (std::ranges::count(all, step)) expect_same_checkpoint(checkpoint(twin, step), checkpoint(abandoned, step));
  }
  expect_same_events(abandoned);
}

}  // namespace

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  expect(in.good(), path.string() + " cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<long> checkpoints(const fs::path& run) {
  std::vector<long> steps;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", absent)) {
    const std::string name = entry.path().filename().string();
    long step = 0;
    if (!name.starts_with("step-")) continue;
    const auto [end, bad] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (bad == std::errc() && end == name.data() + name.size()) steps.push_back(step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::set<fs::path> half_written(const fs::path& dir) {
  std::set<fs::path> found;
  std::error_code vanished;  // files come and go while this looks
  fs::recursive_directory_iterator at(dir, fs::directory_options::skip_permission_denied, vanished);
  for (const fs::recursive_directory_iterator end; !vanished && at != end; at.increment(vanished)) {
    const std::string name = at->path().filename().string();
    for (const char* end_of_name : {".tmp", ".old", ".partial"})
      if (name.ends_with(end_of_name)) found.insert(at->path());
  }
  return found;
}

void expect_same_run(const fs::path& twin, const fs::path& run, long keep) {
  const std::vector<long> want = checkpoints(twin), got = checkpoints(run);
  expect(!got.empty() && got.back() == want.back(), fmt::format("{}: the last checkpoint is {}, not {}", run.string(),
                                                                got.empty() ? -1 : got.back(), want.back()));
  expect(got.size() <= static_cast<size_t>(keep) + 1,
         fmt::format("{}: {} checkpoints are left, --keep is {}", run.string(), got.size(), keep));
  for (const long step : got)
    if (std::ranges::count(want, step)) expect_same_checkpoint(checkpoint(twin, step), checkpoint(run, step));
  for (const char* name : {"metrics.jsonl", "checkpoints/best.json"}) {
    expect(fs::exists(twin / name) == fs::exists(run / name),
           fmt::format("{}: {} is there in one only", run.string(), name));
    if (fs::exists(twin / name)) expect_same_records(twin / name, run / name, twin, run);
  }
  expect(without(read(twin / "config.toml"), twin) == without(read(run / "config.toml"), run),
         (run / "config.toml").string() + " differs from the twin's");
  expect_same_events(run);
  expect_same_listing(twin, run);
  for (const auto& entry : fs::directory_iterator(run)) {
    if (entry.path().filename().string().starts_with("abandoned-")) expect_part_of(twin, entry.path());
  }
}

void expect_same_records(const fs::path& twin, const fs::path& file, const fs::path& twin_dir, const fs::path& dir) {
  const std::vector<Json> want = records(without(read(twin), twin_dir), twin),
                          got = records(without(read(file), dir), file);
  for (size_t i = 0; i < std::min(want.size(), got.size()); ++i) {
    expect(want[i] == got[i], fmt::format("{}: record {} is\n  {}\nthe twin's\n  {}", file.string(), i + 1,
                                          got[i].dump().substr(0, 2000), want[i].dump().substr(0, 2000)));
  }
  expect(want.size() == got.size(),
         fmt::format("{}: {} records, the twin has {}", file.string(), got.size(), want.size()));
}

void expect_same_last_record(const fs::path& twin, const fs::path& file) {
  const std::vector<Json> want = records(without(read(twin), twin.parent_path()), twin);
  const std::vector<Json> got = records(without(read(file), file.parent_path()), file);
  expect(!got.empty() && !want.empty() && got.back() == want.back(),
         fmt::format("{}: the last record differs from the twin's\n  {}\n  {}", file.string(),
                     got.empty() ? "" : got.back().dump(), want.empty() ? "" : want.back().dump()));
}

void expect_same_comparison(const fs::path& twin, const fs::path& dir) {
  expect_same_records(twin / "results.json", dir / "results.json", twin, dir);
  for (const auto& entry : fs::directory_iterator(twin / "runs")) {
    const fs::path run = dir / "runs" / entry.path().filename();
    const std::vector<long> want = checkpoints(entry.path()), got = checkpoints(run);
    expect(!got.empty() && got.back() == want.back(), run.string() + ": another last checkpoint");
    expect_same_checkpoint(checkpoint(entry.path(), want.back()), checkpoint(run, want.back()));
    expect_same_records(entry.path() / "metrics.jsonl", run / "metrics.jsonl", twin, dir);
    expect_same_events(run);
  }
  expect_same_listing(twin, dir);
}

void expect_same_files(const fs::path& twin, const fs::path& dir) {
  expect_same_listing(twin, dir);
  for (const auto& entry : fs::recursive_directory_iterator(twin)) {
    const fs::path other = dir / entry.path().lexically_relative(twin);
    if (entry.is_regular_file())
      expect(without(read(entry.path()), twin) == without(read(other), dir),
             other.string() + " differs from the twin's");
  }
}

}  // namespace torture
