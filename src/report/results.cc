#include "report/results.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/threads.h"

namespace longshot {
namespace {

constexpr const char* kFormat = "longshot-results";
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMostCount = int64_t{1} << 53;  // beyond it a JSON number is no longer exact everywhere

struct Range {
  double least, most;
};
constexpr Range kAny{-1e300, 1e300}, kNotNegative{0, 1e300};
constexpr Range kCount{0, static_cast<double>(kMostCount)}, kPositiveCount{1, static_cast<double>(kMostCount)};

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// The two visitors below walk the same fields() functions: a field is named once.
class Writer {
 public:
  explicit Writer(Json& object) : object_(object) { object_ = Json::object(); }

  void operator()(const char* key, const std::string& value, std::initializer_list<const char*> = {}) {
    object_[key] = value;
  }
  void operator()(const char* key, int64_t value, Range) { object_[key] = value; }
  void operator()(const char* key, double value, Range) { object_[key] = finite(value); }
  void operator()(const char* key, const OptionalNumber& value, Range) {
    object_[key] = value ? finite(*value) : Json();
  }
  void operator()(const char* key, const OptionalCount& value, Range) { object_[key] = value ? Json(*value) : Json(); }
  void operator()(const char* key, const std::vector<double>& values) {
    Json list = Json::array();
    for (const double v : values) list.push_back(finite(v));
    object_[key] = list;
  }
  void operator()(const char* key, const std::vector<std::vector<double>>& rows) {
    Json list = Json::array();
    for (const auto& row : rows) {
      Json numbers = Json::array();
      for (const double v : row) numbers.push_back(finite(v));
      list.push_back(numbers);
    }
    object_[key] = list;
  }
  template <class T>
  void object(const char* key, const T& value) {
    object_[key] = written(value);
  }
  template <class T>
  void object(const char* key, const std::optional<T>& value) {
    object_[key] = value ? written(*value) : Json();
  }
  template <class T>
  void list(const char* key, const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(written(value));
    object_[key] = std::move(list);
  }

  template <class T>
  static Json written(const T& value) {
    Json json;
    Writer writer(json);
    fields(writer, const_cast<T&>(value));  // fields() is shared with the Reader; a Writer changes nothing
    return json;
  }

 private:
  static Json finite(double v) { return std::isfinite(v) ? Json(v) : Json(); }
  Json& object_;
};

class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    require(object_.is_object(), "{}: an object was expected, not {}", where_, shown(object_));
  }
  // Every key must have been asked for: a misspelt one would otherwise be lost without a word.
  void finish() const {
    for (const auto& [key, value] : object_.items())
      require(known_.contains(key), "{}: unknown field '{}'. Was the file written by a newer version?", where_, key);
  }
  const std::string& where() const { return where_; }

  void operator()(const char* key, std::string& value, std::initializer_list<const char*> choices = {}) {
    const Json& v = find(key);
    require(v.is_string(), "{}: {} must be text, not {}", where_, key, shown(v));
    value = v.get<std::string>();
    if (choices.size() == 0) return;
    for (const char* choice : choices)
      if (value == choice) return;
    fail("{}: {} is {}, which is none of {}", where_, key, shown(v), fmt::join(choices, ", "));
  }
  void operator()(const char* key, int64_t& value, Range range) { value = count(key, find(key), range); }
  void operator()(const char* key, double& value, Range range) { value = number(key, find(key), range); }
  void operator()(const char* key, OptionalNumber& value, Range range) {
    const Json* v = find_known(key);
    value = v ? OptionalNumber(number(key, *v, range)) : std::nullopt;
  }
  void operator()(const char* key, OptionalCount& value, Range range) {
    const Json* v = find_known(key);
    value = v ? OptionalCount(count(key, *v, range)) : std::nullopt;
  }
  void operator()(const char* key, std::vector<double>& values) { values = numbers(key, array(key)); }
  void operator()(const char* key, std::vector<std::vector<double>>& rows) {
    rows.clear();
    for (const Json& row : array(key)) {
      require(row.is_array(), "{}: {} must hold lists of numbers, not {}", where_, key, shown(row));
      rows.push_back(numbers(key, row));
    }
  }
  template <class T>
  void object(const char* key, T& value) {
    read(find(key), fmt::format("{}, {}", where_, key), value);
  }
  template <class T>
  void object(const char* key, std::optional<T>& value) {
    if (const Json* v = find_known(key)) {
      read(*v, fmt::format("{}, {}", where_, key), value.emplace());
    } else {
      value.reset();
    }
  }
  template <class T>
  void list(const char* key, std::vector<T>& values) {
    const Json& items = array(key);
    values.clear();
    for (size_t i = 0; i < items.size(); ++i)
      read(items[i], fmt::format("{}, {}[{}]", where_, key, i), values.emplace_back());
  }

  template <class T>
  static void read(const Json& json, const std::string& where, T& value) {
    Reader reader(json, where);
    fields(reader, value);
    reader.finish();
    check(value, reader);
  }

 private:
  const Json& find(const char* key) {
    known_.insert(key);
    const auto it = object_.find(key);
    require(it != object_.end(), "{}: the field '{}' is missing", where_, key);
    return *it;
  }
  // Absent and null both mean: not known.
  const Json* find_known(const char* key) {
    known_.insert(key);
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  const Json& array(const char* key) {
    const Json& v = find(key);
    require(v.is_array(), "{}: {} must be a list, not {}", where_, key, shown(v));
    return v;
  }
  std::vector<double> numbers(const char* key, const Json& list) const {
    std::vector<double> values;
    for (const Json& item : list) values.push_back(number(key, item, kAny));
    return values;
  }
  double number(const char* key, const Json& v, Range range) const {
    require(v.is_number(), "{}: {} must be a number, not {}", where_, key, shown(v));
    const auto value = v.get<double>();
    require(value >= range.least && value <= range.most, "{}: {} is {}, outside {:g} to {:g}", where_, key, shown(v),
            range.least, range.most);
    return value;
  }
  int64_t count(const char* key, const Json& v, Range range) const {
    require(v.is_number_integer(), "{}: {} must be a whole number, not {}", where_, key, shown(v));
    return static_cast<int64_t>(number(key, v, range));
  }

  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

template <class V>
void fields(V& v, EvalRecord& e) {
  v("length", e.length, kPositiveCount);
  v("mode", e.mode, {"nonoverlapping", "sliding"});
  v("stride", e.stride, kPositiveCount);
  v("split", e.split);
  v("score", e.score, {"same", "all"});
  v("tokens", e.tokens, kCount);
  v("loss", e.loss, kNotNegative);
  v("standard_error", e.standard_error, kNotNegative);
  v("perplexity", e.perplexity, kNotNegative);
  v("word_perplexity", e.word_perplexity, kNotNegative);
  v("bits_per_byte", e.bits_per_byte, kNotNegative);
  v("tokens_per_second", e.tokens_per_second, kNotNegative);
  v("peak_memory_bytes", e.peak_memory_bytes, kCount);
}

template <class V>
void fields(V& v, CurvePoint& p) {
  v("step", p.step, kCount);
  v("tokens", p.tokens, kCount);
  v("seconds", p.seconds, kNotNegative);
  v("loss", p.loss, kNotNegative);
  v("valid_loss", p.valid_loss, kNotNegative);
}

template <class V>
void fields(V& v, PositionLoss& p) {
  v("from", p.from, kCount);
  v("to", p.to, kPositiveCount);
  v("tokens", p.tokens, kCount);
  v("loss", p.loss, kNotNegative);
}

template <class V>
void fields(V& v, Decomposition& d) {
  v("length", d.length, kPositiveCount);
  v("total", d.total, kAny);
  v("curse_relief", d.curse_relief, kAny);
  v("beyond", d.beyond, kAny);
}

template <class V>
void fields(V& v, Biases& b) {
  v("heads", b.heads, kPositiveCount);
  v("layer", b.layer, kCount);
  v("slopes", b.slopes);
  v("table", b.table);
}

template <class V>
void fields(V& v, RunRecord& r) {
  v("name", r.name);
  v("position", r.position);
  v("train_length", r.train_length, kPositiveCount);
  v("seed", r.seed, kCount);
  v("parameters", r.parameters, kCount);
  v("steps", r.steps, kCount);
  v("tokens", r.tokens, kCount);
  v("train_seconds", r.train_seconds, kNotNegative);
  v("train_tokens_per_second", r.train_tokens_per_second, kNotNegative);
  v("train_peak_memory_bytes", r.train_peak_memory_bytes, kCount);
  v.list("curve", r.curve);
  v.object("biases", r.biases);
  v.list("evals", r.evals);
  v.list("per_position", r.per_position);
  v.list("decomposition", r.decomposition);
}

template <class V>
void fields(V& v, Machine& m) {
  v("cpu", m.cpu);
  v("threads", m.threads, kPositiveCount);
  v("memory_bytes", m.memory_bytes, kCount);
}

template <class V>
void fields(V& v, Dataset& d) {
  v("name", d.name);
  v("tokenizer", d.tokenizer);
  v("vocabulary", d.vocabulary, kCount);
  v("train_tokens", d.train_tokens, kCount);
}

template <class V>
void fields(V& v, Results& r) {
  std::string format = kFormat;
  int64_t format_version = kFormatVersion;
  v("format", format, {kFormat});
  v("format_version", format_version, {kFormatVersion, kFormatVersion});
  v("version", r.version);
  v.object("machine", r.machine);
  v("date", r.date);
  v("command", r.command);
  v("config", r.config);
  v.object("data", r.data);
  v.list("runs", r.runs);
}

// What must hold between fields.
template <class T>
void check(const T&, const Reader&) {}

void check(const EvalRecord& e, const Reader& reader) {
  const std::string& where = reader.where();
  require(e.stride <= e.length, "{}: stride {} is longer than the window {}", where, e.stride, e.length);
  require(e.mode != "nonoverlapping" || e.stride == e.length,
          "{}: nonoverlapping, but the stride is {} and the length {}", where, e.stride, e.length);
  require(e.loss.has_value() == e.perplexity.has_value(), "{}: one of loss and perplexity is null, the other is not",
          where);
  if (!e.loss) return;
  const double expected = std::exp(*e.loss);
  require(std::abs(*e.perplexity - expected) <= 1e-3 * expected,
          "{}: perplexity is {:g}, but exp(loss) = exp({:g}) = {:g}", where, *e.perplexity, *e.loss, expected);
}

void check(const PositionLoss& p, const Reader& reader) {
  const std::string& where = reader.where();
  require(p.from < p.to, "{}: from {} is not below to {}", where, p.from, p.to);
}

void check(const Decomposition& d, const Reader& reader) {
  const std::string& where = reader.where();
  const double sum = d.curse_relief + d.beyond;
  const double size = std::abs(d.curse_relief) + std::abs(d.beyond);
  require(std::abs(d.total - sum) <= 1e-6 + 1e-6 * size,
          "{}: total is {:g}, but curse_relief + beyond = {:g} + {:g} = {:g}", where, d.total, d.curse_relief, d.beyond,
          sum);
}

void check(const Biases& b, const Reader& reader) {
  const std::string& where = reader.where();
  require(b.slopes.empty() != b.table.empty(), "{}: either slopes or table must be given, and not both", where);
  const size_t heads = b.slopes.empty() ? b.table.size() : b.slopes.size();
  require(static_cast<int64_t>(heads) == b.heads, "{}: heads is {}, but there are {} {}", where, b.heads, heads,
          b.slopes.empty() ? "tables" : "slopes");
  for (const auto& row : b.table)
    require(!row.empty() && row.size() == b.table[0].size(), "{}: a table has {} distances, the first {}", where,
            row.size(), b.table[0].size());
}

void check(const RunRecord& r, const Reader& reader) {
  const std::string& where = reader.where();
  require(!r.name.empty(), "{}: name is empty", where);
  require(!r.position.empty(), "{}: position is empty", where);
  for (size_t i = 1; i < r.curve.size(); ++i)
    require(r.curve[i - 1].step < r.curve[i].step, "{}: curve goes from step {} to step {}", where, r.curve[i - 1].step,
            r.curve[i].step);
}

void check(const Results& r, const Reader& reader) {
  const std::string& where = reader.where();
  std::set<std::string> names;
  for (const RunRecord& run : r.runs)
    require(names.insert(run.name).second, "{}: two runs are named '{}'", where, run.name);
}

}  // namespace

double Biases::at(size_t head, size_t distance) const {
  if (!slopes.empty()) return -slopes[head] * static_cast<double>(distance);
  return table[head][std::min(distance, table[head].size() - 1)];
}

Json Results::to_json() const { return Writer::written(*this); }

Results Results::from_json(const Json& json, const std::string& origin) {
  Results results;
  Reader::read(json, origin, results);
  return results;
}

Json run_to_json(const RunRecord& run) { return Writer::written(run); }

Json eval_to_json(const EvalRecord& eval) { return Writer::written(eval); }

RunRecord run_from_json(const Json& json, const std::string& origin) {
  RunRecord run;
  Reader::read(json, origin, run);
  return run;
}

Results read_results(const fs::path& path) { return Results::from_json(read_json(path), path.string()); }

void write_results(const fs::path& path, const Results& results) { write_json(path, results.to_json()); }

Machine this_machine() {
  Machine machine{.cpu = "unknown", .threads = threads(), .memory_bytes = std::nullopt};
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
