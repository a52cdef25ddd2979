#include "run/results.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/json_fields.h"

namespace longshot {
namespace {

constexpr const char* kFormat = "longshot-results";
constexpr int64_t kOldestFormat = 1, kFormatVersion = 3;

}  // namespace

bool same_question(const EvalRecord& a, const EvalRecord& b) {
  return a.length == b.length && a.mode == b.mode && a.stride == b.stride && a.split == b.split && a.score == b.score &&
         a.tokens == b.tokens && a.scaling == b.scaling;
}

template <class V>
void fields(V& v, EvalRecord& e) {
  v("length", e.length, kPositiveCount);
  v("mode", e.mode, kWindowModes);
  v("stride", e.stride, kPositiveCount);
  v("split", e.split);
  v("score", e.score, kScored);
  v("tokens", e.tokens, kAnyCount);
  v("data", e.data);
  v("weights", e.weights);
  v("step", e.step, kAnyCount);
  v("precision", e.precision, kPrecisions);
  v("arithmetic", e.arithmetic);
  v("scaling", e.scaling);
  v("loss", e.loss, kNotNegative);
  v("standard_error", e.standard_error, kNotNegative);
  v("perplexity", e.perplexity, kNotNegative);
  v("word_perplexity", e.word_perplexity, kNotNegative);
  v("bits_per_byte", e.bits_per_byte, kNotNegative);
  v("tokens_per_second", e.tokens_per_second, kNotNegative);
  v("peak_memory_bytes", e.peak_memory_bytes, kAnyCount);
  v.numbers_if_any("blocks", e.blocks);
}

template <class V>
void fields(V& v, PositionLoss& p) {
  v("from", p.from, kAnyCount);
  v("to", p.to, kPositiveCount);
  v("tokens", p.tokens, kAnyCount);
  v("loss", p.loss, kNotNegative);
  v("standard_error", p.standard_error, kNotNegative);
}

template <class V>
void fields(V& v, Decomposition& d) {
  v("length", d.length, kPositiveCount);
  v("total", d.total, kAny);
  v("curse_relief", d.curse_relief, kAny);
  v("beyond", d.beyond, kAny);
  v("total_error", d.total_error, kNotNegative);
  v("curse_relief_error", d.curse_relief_error, kNotNegative);
  v("beyond_error", d.beyond_error, kNotNegative);
}

template <class V>
void fields(V& v, EvaluationLine& l) {
  v("model", l.model);
  v("position", l.position);
  v("train_length", l.train_length, kPositiveCount);
  v.list("results", l.results);
  v.list_if_any("per_position", l.per_position);
  v.list_if_any("decomposition", l.decomposition);
}

template <class V>
void fields(V& v, Biases& b) {
  v("heads", b.heads, kPositiveCount);
  v("layer", b.layer, kAnyCount);
  v("slopes", b.slopes);
  v("table", b.table);
}

template <class V>
void fields(V& v, RunRecord& r) {
  v("name", r.name);
  v("position", r.position);
  v("variant", r.variant);
  v("label", r.label);
  v("train_length", r.train_length, kPositiveCount);
  v.texts_if_any("options", r.options);
  v("train_data", r.train_data);
  v("arithmetic", r.arithmetic);
  v("seed", r.seed, kSeed);
  v("parameters", r.parameters, kAnyCount);
  v("steps", r.steps, kAnyCount);
  v("tokens", r.tokens, kAnyCount);
  v("planned_steps", r.planned_steps, kAnyCount);
  v("train_seconds", r.train_seconds, kNotNegative);
  v("train_tokens_per_second", r.train_tokens_per_second, kNotNegative);
  v("train_peak_memory_bytes", r.train_peak_memory_bytes, kAnyCount);
  v.list("curve", r.curve);
  v.object("biases", r.biases);
  v.list("evals", r.evals);
  v.list("per_position", r.per_position);
  v.list("decomposition", r.decomposition);
  v.list_if_any("speeds", r.speeds);
}

template <class V>
void fields(V& v, Machine& m) {
  v("cpu", m.cpu);
  v("threads", m.threads, kPositiveCount);
  v("memory_bytes", m.memory_bytes, kAnyCount);
}

template <class V>
void fields(V& v, Dataset& d) {
  v("name", d.name);
  v("tokenizer", d.tokenizer);
  v("vocabulary", d.vocabulary, kAnyCount);
  v("train_tokens", d.train_tokens, kAnyCount);
  v("train_data", d.train_data);
  v("test_data", d.test_data);
}

template <class V>
void fields(V& v, Results& r) {
  std::string format = kFormat;             // NOLINT(*-const-correctness): a reader writes both
  int64_t format_version = kFormatVersion;  // NOLINT(*-const-correctness)
  v("format", format, {kFormat});
  v("format_version", format_version, {kOldestFormat, kFormatVersion});
  v("version", r.version);
  v.object("machine", r.machine);
  v("date", r.date);
  v("command", r.command);
  v("config", r.config);
  v.object("data", r.data);
  v.texts_if_any("planned_runs", r.planned_runs);
  v.list("runs", r.runs);
}

// What must hold between fields.

void check(const EvalRecord& e, const FieldReader& reader) {
  const std::string& where = reader.where();
  require(e.stride <= e.length, "{}: stride {} is longer than the window {}", where, e.stride, e.length);
  require(e.mode != WindowMode::kNonoverlapping || e.stride == e.length,
          "{}: nonoverlapping, but the stride is {} and the length {}", where, e.stride, e.length);
  require(e.loss.has_value() == e.perplexity.has_value(), "{}: one of loss and perplexity is null, the other is not",
          where);
  if (!e.loss) return;
  const double expected = std::exp(*e.loss);
  require(std::isfinite(expected) && std::abs(*e.perplexity - expected) <= 1e-3 * expected,
          "{}: perplexity is {:g}, but exp(loss) = exp({:g}) = {:g}", where, *e.perplexity, *e.loss, expected);
}

void check(const PositionLoss& p, const FieldReader& reader) {
  const std::string& where = reader.where();
  require(p.from < p.to, "{}: from {} is not below to {}", where, p.from, p.to);
}

void check(const Decomposition& d, const FieldReader& reader) {
  const std::string& where = reader.where();
  const double sum = d.curse_relief + d.beyond;
  const double size = std::abs(d.curse_relief) + std::abs(d.beyond);
  require(std::abs(d.total - sum) <= 1e-6 + 1e-6 * size,
          "{}: total is {:g}, but curse_relief + beyond = {:g} + {:g} = {:g}", where, d.total, d.curse_relief, d.beyond,
          sum);
}

void check(const SpeedRecord& s, const FieldReader& reader) {
  require(s.low <= s.median && s.median <= s.high, "{}: the median {:g} is not between low {:g} and high {:g}",
          reader.where(), s.median, s.low, s.high);
}

void check(const Biases& b, const FieldReader& reader) {
  const std::string& where = reader.where();
  require(b.slopes.empty() != b.table.empty(), "{}: either slopes or table must be given, and not both", where);
  const size_t heads = b.slopes.empty() ? b.table.size() : b.slopes.size();
  require(static_cast<int64_t>(heads) == b.heads, "{}: heads is {}, but there are {} {}", where, b.heads, heads,
          b.slopes.empty() ? "tables" : "slopes");
  for (const auto& row : b.table)
    require(!row.empty() && row.size() == b.table[0].size(), "{}: a table has {} distances, the first {}", where,
            row.size(), b.table[0].size());
}

void check(const RunRecord& r, const FieldReader& reader) {
  const std::string& where = reader.where();
  require(!r.name.empty(), "{}: name is empty", where);
  require(!r.position.empty(), "{}: position is empty", where);
  for (size_t i = 1; i < r.curve.size(); ++i)
    require(r.curve[i - 1].step < r.curve[i].step, "{}: curve goes from step {} to step {}", where, r.curve[i - 1].step,
            r.curve[i].step);
}

void check(const Results& r, const FieldReader& reader) {
  const std::string& where = reader.where();
  std::set<std::string> names;
  for (const RunRecord& run : r.runs) {
    require(names.insert(run.name).second, "{}: two runs are named '{}'", where, run.name);
  }
}

double Biases::at(size_t head, size_t distance) const {
  if (!slopes.empty()) return -slopes[head] * static_cast<double>(distance);
  return table[head][std::min(distance, table[head].size() - 1)];
}

bool is_immaterial(const std::string& option) {
  constexpr std::array<std::string_view, 11> kImmaterial = {"data",         "out",         "seed",         "threads",
                                                            "eval-every",   "eval-tokens", "eval-lengths", "save-every",
                                                            "save-minutes", "keep",        "log-every"};
  return std::ranges::find(kImmaterial, option) != kImmaterial.end();
}

Json Results::to_json() const { return write_fields(*this); }

Results Results::from_json(const Json& json, const std::string& origin) { return read_fields<Results>(json, origin); }

Json EvaluationLine::to_json() const { return write_fields(*this); }

EvaluationLine EvaluationLine::from_json(const Json& json, const std::string& origin) {
  return read_fields<EvaluationLine>(json, origin);
}

Json run_to_json(const RunRecord& run) { return write_fields(run); }

Json eval_to_json(const EvalRecord& eval) { return write_fields(eval); }

RunRecord run_from_json(const Json& json, const std::string& origin) { return read_fields<RunRecord>(json, origin); }

Results read_results(const fs::path& path) { return Results::from_json(read_json(path), path.string()); }

void write_results(const fs::path& path, const Results& results) { write_json(path, results.to_json()); }

Machine this_machine(int threads) {
  Machine machine{.cpu = "unknown", .threads = threads, .memory_bytes = std::nullopt};
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    machine.cpu = line.substr(colon + 2);
    break;
  }
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) machine.memory_bytes = static_cast<int64_t>(pages) * page;
  return machine;
}

}  // namespace longshot
