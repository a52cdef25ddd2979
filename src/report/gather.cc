#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "report/report.h"
#include "run/read_run.h"

namespace longshot {
namespace {

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
  all.planned_runs.insert(all.planned_runs.end(), more.planned_runs.begin(), more.planned_runs.end());
  if (all.data.tokenizer != more.data.tokenizer) all.data.tokenizer.clear();
  if (!more.command.empty()) all.command += (all.command.empty() ? "" : "\n") + more.command;
}

Results read_results_at(const fs::path& path, const std::string& given) {
  if (fs::is_regular_file(path)) return read_results(path);
  if (const ExperimentDir experiment(path); fs::is_regular_file(experiment.plan())) return read_experiment(experiment);
  if (const fs::path results = ExperimentDir(path).results(); fs::is_regular_file(results))
    return read_results(results);
  Results results;
  if (const RunDir run(path); fs::is_regular_file(run.record())) {
    results.runs = {run_from_json(read_json(run.record()), run.record().string())};
  } else {
    require(fs::is_regular_file(run.config()),
            "{}: neither a results file nor a directory with compare.json, results.json, run.json or config.toml",
            given);
    results.runs = read_run(run);
    results.config = read_text(run.config());
  }
  return results;
}

}  // namespace

LabelledPath labelled_path(const fs::path& given) {
  const std::string text = given.string();
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || fs::exists(given)) return {std::nullopt, given};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Results gather_results(const std::vector<fs::path>& paths, const Watch& watch) {
  Results all;
  double done = 0;
  for (const fs::path& given : paths) {
    watch.at(done++ / static_cast<double>(paths.size()));
    const LabelledPath argument = labelled_path(given);
    fs::path path = fs::absolute(argument.path).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // "runs/a/" names the same as "runs/a"
    Results more = read_results_at(path, given.string());
    if (argument.label) {
      for (RunRecord& run : more.runs) run.label = argument.label;
    }
    append(all, std::move(more), argument.label.value_or(path.filename().string()));
  }
  watch.at(1);
  return all;
}

}  // namespace longshot
