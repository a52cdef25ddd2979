#include "report/tidy.h"

#include <fmt/ranges.h>

#include "report/text.h"

namespace longshot {
namespace {

// How a number was taken, as far as it applies.
struct Taken {
  OptionalCount length{}, stride{}, step{}, from{}, to{}, tokens{};
  std::string mode{}, split{}, score{}, precision{}, scaling{};
};

struct Number {
  OptionalNumber value{}, standard_error{}, low{}, high{};
};

std::string text(const OptionalCount& count) { return count ? fmt::format("{}", *count) : ""; }
std::string text(const OptionalNumber& number) { return number ? fmt::format("{:.9g}", *number) : ""; }
OptionalNumber number(const OptionalCount& count) {
  return count ? OptionalNumber(static_cast<double>(*count)) : std::nullopt;
}

class Rows {
 public:
  Rows() {
    out_ = kNumbersBeginning;
    out_ += "length,mode,stride,split,score,precision,scaling,step,from,to,tokens,value,standard_error,low,high\r\n";
  }

  // The rows that follow are of this run.
  void begin(const RunRecord& run) {
    run_ = fmt::format("{},{},{},{},{},{}", csv_words(run.name), csv_words(run.label.value_or("")),
                       csv_words(run.position), csv_words(run.variant.value_or("")), run.train_length, text(run.seed));
  }

  void add(const char* quantity, const Taken& t, const Number& n) {
    const std::string fields[] = {run_,
                                  quantity,
                                  text(t.length),
                                  csv_words(t.mode),
                                  text(t.stride),
                                  csv_words(t.split),
                                  csv_words(t.score),
                                  csv_words(t.precision),
                                  csv_words(t.scaling),
                                  text(t.step),
                                  text(t.from),
                                  text(t.to),
                                  text(t.tokens),
                                  text(n.value),
                                  text(n.standard_error),
                                  text(n.low),
                                  text(n.high)};
    out_ += fmt::format("{}\r\n", fmt::join(fields, ","));
  }
  void add_known(const char* quantity, const Taken& t, const OptionalNumber& value) {
    if (value) add(quantity, t, {.value = value});
  }

  std::string take() { return std::move(out_); }

 private:
  std::string out_, run_;
};

void add_training(Rows& rows, const RunRecord& run) {
  const Taken whole{.length = run.train_length, .step = run.steps, .tokens = run.tokens};
  rows.add_known("parameters", {}, number(run.parameters));
  rows.add_known("train_seconds", whole, run.train_seconds);
  rows.add_known("train_tokens_per_second", whole, run.train_tokens_per_second);
  rows.add_known("train_peak_memory_bytes", whole, number(run.train_peak_memory_bytes));
  for (const MetricsRecord& m : run.curve) {
    Taken t{.length = run.train_length, .step = m.step, .tokens = m.tokens};
    rows.add_known("training_loss", t, m.loss);
    rows.add_known("seconds", t, m.seconds);
    rows.add_known("gradient_norm", t, m.gradient_norm);
    rows.add_known("valid_loss", t, m.valid_loss);
    for (const ValidLoss& v : m.valid_losses) {
      t.length = v.length;
      rows.add_known("valid_loss", t, v.loss);
    }
  }
}

void add_evaluations(Rows& rows, const RunRecord& run) {
  for (const EvalRecord& e : run.evals) {
    const Taken t{.length = e.length,
                  .stride = e.stride,
                  .step = e.step,
                  .tokens = e.tokens,
                  .mode = name_of(kWindowModes, e.mode),
                  .split = e.split,
                  .score = name_of(kScored, e.score),
                  .precision = e.precision ? name_of(kPrecisions, *e.precision) : "",
                  .scaling = e.scaling.value_or("")};
    rows.add("loss", t, {.value = e.loss, .standard_error = e.standard_error});
    rows.add_known("perplexity", t, e.perplexity);
    rows.add_known("word_perplexity", t, e.word_perplexity);
    rows.add_known("bits_per_byte", t, e.bits_per_byte);
    rows.add_known("tokens_per_second", t, e.tokens_per_second);
    rows.add_known("peak_memory_bytes", t, number(e.peak_memory_bytes));
  }
  for (const PositionLoss& p : run.per_position)
    rows.add("position_loss", {.from = p.from, .to = p.to, .tokens = p.tokens},
             {.value = p.loss, .standard_error = p.standard_error});
  for (const Decomposition& d : run.decomposition) {
    const Taken t{.length = d.length};
    rows.add("total", t, {.value = d.total, .standard_error = d.total_error});
    rows.add("curse_relief", t, {.value = d.curse_relief, .standard_error = d.curse_relief_error});
    rows.add("beyond", t, {.value = d.beyond, .standard_error = d.beyond_error});
  }
  for (const SpeedRecord& s : run.speeds)
    rows.add(s.work == SpeedWork::kTraining ? "training_speed" : "evaluation_speed", {.length = s.length},
             {.value = s.median, .low = s.low, .high = s.high});
}

}  // namespace

std::string tidy_csv(const Results& results) {
  Rows rows;
  for (const RunRecord& run : results.runs) {
    rows.begin(run);
    add_training(rows, run);
    add_evaluations(rows, run);
  }
  return rows.take();
}

}  // namespace longshot
