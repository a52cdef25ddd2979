#include <algorithm>
#include <map>
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
  if (!more.command.empty()) all.command += (all.command.empty() ? "" : "\n") + more.command;
}

// A variant that only runs' directories know is long; it is named after its first run.
void name_variants(Results& all) {
  std::map<std::string, std::string> names;
  for (RunRecord& run : all.runs) {
    if (!run.variant || run.variant->find('\n') == std::string::npos) continue;
    run.variant = names.try_emplace(*run.variant, run.name).first->second;
  }
}

}  // namespace

Results gather_results(const std::vector<fs::path>& paths, const Watch& watch) {
  Results all;
  double done = 0;
  for (const fs::path& given : paths) {
    watch.at(done++ / static_cast<double>(paths.size()));
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
      more.runs = read_run(RunDir(path));
      more.config = read_text(path / "config.toml");
    }
    append(all, std::move(more), path.filename().string());
  }
  name_variants(all);
  watch.at(1);
  return all;
}

}  // namespace longshot
