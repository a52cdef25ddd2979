#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "report/report.h"

namespace longshot {
namespace {

// The fields of a record that a checked format knows; a line of metrics.jsonl may say more.
Json picked(const Json& record, std::initializer_list<const char*> keys) {
  Json some = Json::object();
  for (const char* key : keys)
    if (const auto it = record.find(key); it != record.end()) some[key] = *it;
  return some;
}

std::vector<Json> records_if_any(const fs::path& path) {
  return fs::exists(path) ? read_records(path) : std::vector<Json>{};
}

std::string origin_of_line(const fs::path& path, size_t index) {
  return fmt::format("{}, record {}", path.string(), index + 1);
}

Json curve_of(const fs::path& path) {
  Json curve = Json::array();
  const auto records = records_if_any(path);
  for (size_t i = 0; i < records.size(); ++i) {
    require(records[i].is_object(), "{}: an object was expected", origin_of_line(path, i));
    Json point = picked(records[i], {"step", "tokens", "seconds", "loss", "valid_loss"});
    if (!point.contains("step")) continue;
    // A run that was continued, or one that logs both losses apart, has several lines for a step: the last
    // wins.
    if (!curve.empty() && curve.back()["step"] == point["step"]) {
      curve.back().update(point);
    } else {
      curve.push_back(std::move(point));
    }
  }
  return curve;
}

RunRecord run_from_records(const fs::path& dir) {
  const std::string name = dir.filename().string();
  Json run{{"name", name},
           {"curve", curve_of(dir / "metrics.jsonl")},
           {"evals", Json::array()},
           {"per_position", Json::array()},
           {"decomposition", Json::array()}};
  try {
    const toml::table config = toml::parse_file((dir / "config.toml").string());
    if (const auto position = config["position"].value<std::string>()) run["position"] = *position;
    if (const auto length = config["length"].value<int64_t>()) run["train_length"] = *length;
    if (const auto seed = config["seed"].value<int64_t>()) run["seed"] = *seed;
  } catch (const toml::parse_error& e) {
    fail("{}: cannot be read: {}", (dir / "config.toml").string(), e.description());
  }
  const fs::path evals = dir / "evals.jsonl";
  const auto records = records_if_any(evals);
  for (size_t i = 0; i < records.size(); ++i) {
    const auto results = records[i].is_object() ? records[i].find("results") : records[i].end();
    require(results != records[i].end() && results->is_array(), "{}: there is no list 'results'",
            origin_of_line(evals, i));
    for (const Json& eval : *results) run["evals"].push_back(eval);
    for (const char* key : {"per_position", "decomposition", "biases", "parameters"})
      if (const auto it = records[i].find(key); it != records[i].end()) run[key] = *it;
  }
  return run_from_json(run, dir.string());
}

void append(Results& all, Results more, const std::string& source) {
  std::set<std::string> names;
  for (const RunRecord& run : all.runs) names.insert(run.name);
  for (RunRecord& run : more.runs) {
    if (names.contains(run.name)) run.name = source + "/" + run.name;
    require(names.insert(run.name).second, "{}: the run '{}' was named twice", source, run.name);
  }
  if (all.runs.empty()) {
    all = std::move(more);
    return;
  }
  std::move(more.runs.begin(), more.runs.end(), std::back_inserter(all.runs));
  if (!more.command.empty()) all.command += (all.command.empty() ? "" : "\n") + more.command;
}

}  // namespace

Results gather_results(const std::vector<fs::path>& paths) {
  Results all;
  for (const fs::path& given : paths) {
    fs::path path = fs::absolute(given).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // "runs/a/" names the same as "runs/a"
    Results more;
    if (fs::is_regular_file(path)) {
      more = read_results(path);
    } else if (fs::is_regular_file(path / "results.json")) {
      more = read_results(path / "results.json");
    } else if (fs::is_regular_file(path / "run.json")) {
      more.runs = {run_from_json(read_json(path / "run.json"), (path / "run.json").string())};
    } else {
      require(fs::is_regular_file(path / "config.toml"),
              "{}: neither a results file nor a directory with results.json, run.json or config.toml", given.string());
      more.runs = {run_from_records(path)};
      more.config = read_text(path / "config.toml");
    }
    append(all, std::move(more), path.filename().string());
  }
  return all;
}

}  // namespace longshot
