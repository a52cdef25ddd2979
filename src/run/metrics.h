// metrics.jsonl: how training went, one record a line, and the curve that the lines make.
#pragma once
#include <vector>

#include "base/records.h"
#include "run/run_dir.h"

namespace longshot {

// A validation at a length that is not the training length.
struct ValidLoss {
  int64_t length = 0;
  double loss = 0;
  bool operator==(const ValidLoss&) const = default;
};

template <class V>
void fields(V& v, ValidLoss& l) {
  v("length", l.length, kPositiveCount);
  v("loss", l.loss, kNotNegative);
}

// The state of training after `step` updates: of a logged step, of a validation, or of both.
struct MetricsRecord {
  int64_t step = 0;
  OptionalCount tokens{};    // seen so far
  OptionalNumber seconds{};  // of training, earlier processes included
  OptionalNumber loss{};     // mean over the targets of the step, nats
  OptionalNumber lr{}, gradient_norm{};
  OptionalNumber tokens_per_second{};     // since the record before
  OptionalNumber valid_loss{};            // mean over the validation tokens, nats, in windows of the training length
  std::vector<ValidLoss> valid_losses{};  // the same at other lengths
};

template <class V>
void fields(V& v, MetricsRecord& m) {
  v("step", m.step, kAnyCount);
  v("tokens", m.tokens, kAnyCount);
  v("seconds", m.seconds, kNotNegative);
  v("loss", m.loss, kNotNegative);
  v("lr", m.lr, kNotNegative);
  v("gradient_norm", m.gradient_norm, kNotNegative);
  v("tokens_per_second", m.tokens_per_second, kNotNegative);
  v("valid_loss", m.valid_loss, kNotNegative);
  v.list_if_any("valid_losses", m.valid_losses);
}

// The object of a line: what is not known is left out.
Json metrics_line(const MetricsRecord& record);

// The lines that count, in their order; none without a file. A line of an earlier step than the one before it
// supersedes all of later steps; a torn last line is left out.
std::vector<MetricsRecord> read_metrics_lines(const RunDir& run);

// The run's curve: one record a step, with each field's last value. Steps ascend.
std::vector<MetricsRecord> read_metrics(const RunDir& run);

// The best validation of a run, best.json.
struct BestRecord {
  int64_t step = 0;
  double valid_loss = 0;
};

template <class V>
void fields(V& v, BestRecord& b) {
  v("step", b.step, kAnyCount);
  v("valid_loss", b.valid_loss, kNotNegative);
}

std::optional<BestRecord> read_best(const RunDir& run);  // nothing without a file

}  // namespace longshot
