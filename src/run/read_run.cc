#include "run/read_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/toml.h"
#include "run/metrics.h"

namespace longshot {
namespace {

// Options that change neither the weights nor what a number means.
const std::set<std::string, std::less<>> kImmaterial = {
    "data", "out", "seed", "threads", "eval-every", "eval-tokens", "save-every", "save-minutes", "keep", "log-every"};

struct Config {
  RunRecord record;     // position, length and seed
  std::string variant;  // everything else that matters
};

Config read_config(const RunDir& run) {
  Config config;
  const std::string path = run.config().string();
  toml::table table = read_toml(run.config());
  config.record.position = table["position"].value_or(std::string());
  config.record.train_length = table["length"].value_or(int64_t{0});
  if (const auto seed = table["seed"].value<int64_t>()) config.record.seed = *seed;
  for (const std::string& key : kImmaterial) table.erase(key);
  std::ostringstream text;
  text << table;
  config.variant = text.str();
  require(!config.record.position.empty() && config.record.train_length > 0,
          "{}: 'position' or 'length' is missing. Is it the directory of a run?", path);
  config.record.name = run.path().filename().string();
  return config;
}

// Evaluations of the same weights on the same text in the same precision.
struct Subject {
  std::optional<std::string> weights, data;
  OptionalCount step;
  std::string precision;
  bool operator==(const Subject&) const = default;
};

bool same_question(const EvalRecord& a, const EvalRecord& b) {
  return a.length == b.length && a.mode == b.mode && a.stride == b.stride && a.split == b.split && a.score == b.score &&
         a.tokens == b.tokens;
}

void add(RunRecord& run, EvaluationLine line) {
  for (EvalRecord& eval : line.results) {
    std::erase_if(run.evals, [&](const EvalRecord& other) { return same_question(eval, other); });
    run.evals.push_back(std::move(eval));
  }
  if (!line.per_position.empty()) run.per_position = std::move(line.per_position);
  if (!line.decomposition.empty()) run.decomposition = std::move(line.decomposition);
}

}  // namespace

std::vector<RunRecord> read_run(const RunDir& run) {
  const Config config = read_config(run);
  std::vector<RunRecord> records;
  std::vector<Subject> subjects;
  const std::vector<Json> lines = fs::exists(run.evals()) ? read_records(run.evals()) : std::vector<Json>{};
  for (size_t i = 0; i < lines.size(); ++i) {
    EvaluationLine line =
        EvaluationLine::from_json(lines[i], fmt::format("{}, record {}", run.evals().string(), i + 1));
    if (line.results.empty()) continue;
    const Subject subject{line.results[0].weights, line.results[0].data, line.results[0].step,
                          line.results[0].precision.value_or("f32")};
    const auto place = static_cast<size_t>(std::ranges::find(subjects, subject) - subjects.begin());
    if (place == subjects.size()) {
      records.push_back(config.record);
      subjects.push_back(subject);
    }
    add(records[place], std::move(line));
  }
  if (records.empty()) records.push_back(config.record), subjects.emplace_back();
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].curve = read_metrics(run);
    records[i].variant = fmt::format("{}\nstep {}, text {}, {}", config.variant, subjects[i].step.value_or(-1),
                                     subjects[i].data.value_or("?"), subjects[i].precision);
    if (records.size() > 1) {
      records[i].name += subjects[i].step ? fmt::format(", step {}", *subjects[i].step) : fmt::format(", {}", i + 1);
      if (subjects[i].data) records[i].name += fmt::format(", text {}", subjects[i].data->substr(0, 8));
      if (subjects[i].precision != "f32") records[i].name += ", " + subjects[i].precision;
    }
  }
  return records;
}

}  // namespace longshot
