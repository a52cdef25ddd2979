
#include "run/metrics.h"

#include "base/json_fields.h"

namespace longshot {
namespace {

void take(const MetricsRecord& from, MetricsRecord& to) {
  const auto known = [](const auto& value, auto& field) {
    if (value) field = value;
  };
  known(from.tokens, to.tokens);
  known(from.seconds, to.seconds);
  known(from.loss, to.loss);
  known(from.lr, to.lr);
  known(from.gradient_norm, to.gradient_norm);
  known(from.tokens_per_second, to.tokens_per_second);
  known(from.valid_loss, to.valid_loss);
  if (!from.valid_losses.empty()) to.valid_losses = from.valid_losses;
}

}  // namespace

Json metrics_line(const MetricsRecord& record) {
  Json line = Json::object();
  const Json all = write_fields(record);
  for (const auto& [key, value] : all.items()) {
    if (!value.is_null()) line[key] = value;
  }
  return line;
}

std::vector<MetricsRecord> read_metrics_lines(const RunDir& run) {
  std::vector<MetricsRecord> lines;
  if (!fs::exists(run.metrics())) return lines;
  int64_t number = 0;
  for (const Json& line : read_records(run.metrics())) {
    const std::string origin = fmt::format("{}, line {}", run.metrics().string(), ++number);
    const auto record = read_fields<MetricsRecord>(line, origin);
    while (!lines.empty() && lines.back().step > record.step) lines.pop_back();
    lines.push_back(record);
  }
  return lines;
}

std::vector<MetricsRecord> read_metrics(const RunDir& run) {
  std::vector<MetricsRecord> curve;
  for (const MetricsRecord& line : read_metrics_lines(run)) {
    if (!curve.empty() && curve.back().step == line.step) {
      take(line, curve.back());
    } else {
      curve.push_back(line);
    }
  }
  return curve;
}

std::optional<BestRecord> read_best(const RunDir& run) {
  if (!fs::exists(run.best())) return std::nullopt;
  return read_fields<BestRecord>(read_json(run.best()), run.best().string());
}

}  // namespace longshot
