#include "run/read_run.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/toml.h"
#include "run/metrics.h"

namespace longshot {

template <class V>
void fields(V& v, ExperimentSpeeds::Run& r) {
  v("name", r.name);
  v.list("speeds", r.speeds);
}

template <class V>
void fields(V& v, ExperimentSpeeds& s) {
  v.list("runs", s.runs);
}

namespace {

std::string value_text(const toml::node& value) {
  if (const auto* text = value.as_string()) return text->get();
  if (const auto* number = value.as_floating_point()) return fmt::format("{}", number->get());
  std::ostringstream text;
  value.visit([&](const auto& v) { text << v; });
  return text.str();
}

OptionValues all_options(const RunDir& run) {
  OptionValues options;
  for (const auto& [key, value] : read_toml(run.config())) {
    if (!value.is_table()) options[std::string(key.str())] = value_text(value);
  }
  return options;
}

OptionValues material(OptionValues options) {
  std::erase_if(options, [](const auto& option) { return is_immaterial(option.first); });
  return options;
}

RunRecord read_config(const RunDir& run) {
  RunRecord record;
  record.name = run.path().filename().string();
  OptionValues options = all_options(run);
  const auto of = [&](const char* name) -> std::string {
    const auto found = options.find(name);
    return found == options.end() ? "" : found->second;
  };
  const auto count = [&](const char* name) -> OptionalCount {
    const std::string text = of(name);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value >= 0 ? OptionalCount(value) : std::nullopt;
  };
  record.position = of("position");
  record.train_length = count("length").value_or(0);
  record.seed = count("seed");
  record.planned_steps = count("steps");
  require(!record.position.empty() && record.train_length > 0,
          "{}: 'position' or 'length' is missing. Is it the directory of a run?", run.config().string());
  record.options = material(std::move(options));
  return record;
}

// Evaluations of the same weights on the same text in the same precision, with the same scaling of positions.
struct Subject {
  std::optional<std::string> weights, data;
  OptionalCount step;
  Precision precision = Precision::kF32;
  std::optional<std::string> scaling;
  bool operator==(const Subject&) const = default;
};

void add(RunRecord& run, EvaluationLine line) {
  for (EvalRecord& eval : line.results) {
    std::erase_if(run.evals, [&](const EvalRecord& other) { return same_question(eval, other); });
    run.evals.push_back(std::move(eval));
  }
  if (!line.per_position.empty()) run.per_position = std::move(line.per_position);
  if (!line.decomposition.empty()) run.decomposition = std::move(line.decomposition);
}

}  // namespace

OptionValues read_options(const RunDir& run) { return material(all_options(run)); }

std::vector<RunRecord> read_run(const RunDir& run) {
  RunRecord common = read_config(run);
  common.curve = read_metrics(run);
  if (!common.curve.empty()) common.steps = common.curve.back().step, common.tokens = common.curve.back().tokens;
  std::vector<RunRecord> records;
  std::vector<Subject> subjects;
  const std::vector<Json> lines = fs::exists(run.evals()) ? read_records(run.evals()) : std::vector<Json>{};
  for (size_t i = 0; i < lines.size(); ++i) {
    EvaluationLine line =
        EvaluationLine::from_json(lines[i], fmt::format("{}, record {}", run.evals().string(), i + 1));
    if (line.results.empty()) continue;
    const Subject subject{line.results[0].weights, line.results[0].data, line.results[0].step,
                          line.results[0].precision.value_or(Precision::kF32), line.results[0].scaling};
    const auto place = static_cast<size_t>(std::ranges::find(subjects, subject) - subjects.begin());
    if (place == subjects.size()) {
      records.push_back(common);
      subjects.push_back(subject);
    }
    add(records[place], std::move(line));
  }
  if (records.empty()) records.push_back(common), subjects.emplace_back();
  for (size_t i = 0; records.size() > 1 && i < records.size(); ++i) {
    records[i].name += subjects[i].step ? fmt::format(", step {}", *subjects[i].step) : fmt::format(", {}", i + 1);
    if (subjects[i].data) records[i].name += fmt::format(", text {}", subjects[i].data->substr(0, 8));
    if (subjects[i].precision != Precision::kF32)
      records[i].name += fmt::format(", {}", name_of(kPrecisions, subjects[i].precision));
    if (subjects[i].scaling) records[i].name += ", " + *subjects[i].scaling;
  }
  return records;
}

ExperimentSpeeds read_speeds(const ExperimentDir& dir) {
  if (!fs::exists(dir.speeds())) return {};
  return read_fields<ExperimentSpeeds>(read_json(dir.speeds()), dir.speeds().string());
}

void write_speeds(const ExperimentDir& dir, const ExperimentSpeeds& speeds) {
  write_json(dir.speeds(), write_fields(speeds));
}

Results read_experiment(const ExperimentDir& dir) {
  Results results = Results::from_json(read_json(dir.plan()), dir.plan().string());
  std::vector<std::string> names = results.planned_runs;
  if (names.empty() && fs::is_directory(dir.runs())) {  // of an older version: whatever is there
    for (const auto& entry : fs::directory_iterator(dir.runs())) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
  }
  for (const std::string& name : names) {
    require(!name.empty() && name[0] != '.' && name.find('/') == std::string::npos,
            "{}: '{}' is not the name of a model", dir.plan().string(), name);
  }
  const ExperimentSpeeds speeds = read_speeds(dir);
  for (const std::string& name : names) {
    const RunDir run = dir.run(name);
    if (fs::exists(run.record())) {
      results.runs.push_back(run_from_json(read_json(run.record()), run.record().string()));
    } else if (fs::exists(run.config())) {
      RunRecord record = read_config(run);
      record.train_data = results.data.train_data;
      record.curve = read_metrics(run);
      record.steps = record.curve.empty() ? 0 : record.curve.back().step;
      results.runs.push_back(std::move(record));
    } else {
      continue;
    }
    const auto found = std::ranges::find(speeds.runs, name, &ExperimentSpeeds::Run::name);
    if (found != speeds.runs.end()) results.runs.back().speeds = found->speeds;
  }
  return results;
}

}  // namespace longshot
