#include "report/tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/paper.h"
#include "report/svg.h"
#include "report/text.h"

namespace longshot {
namespace {

Cell mean_cell(const std::optional<Stat>& stat, double unit, int decimals) {
  return number_cell(stat ? OptionalNumber(stat->mean / unit) : std::nullopt, decimals);
}

Cell perplexity_number(const OptionalNumber& p) {
  Cell cell = number_cell(p, 2);
  if (p) cell.text = perplexity_text(*p);
  return cell;
}

Cell percent_cell(const OptionalNumber& fraction) {
  Cell cell = number_cell(fraction, 3);
  if (fraction) cell.text = fmt::format("{:+.1f}%", 100 * *fraction);
  return cell;
}

OptionalNumber negated(const OptionalNumber& value) { return value ? OptionalNumber(-*value) : std::nullopt; }

Cell number_of(const OptionalCount& count, double unit, int decimals) {
  return number_cell(count ? OptionalNumber(static_cast<double>(*count) / unit) : std::nullopt, decimals);
}

constexpr double kMiB = 1024.0 * 1024.0;

}  // namespace

Table extrapolation_table(const std::vector<Extrapolation>& all) {
  Table table{.id = "extrapolation",
              .title = "Past the training length",
              .note =
                  "By perplexity at the longest length over that at the training length: improves below 0.995, holds "
                  "below 1.02, degrades below 1.5, breaks from there on.",
              .header = {"method", "trained at L", "perplexity at L", "lowest", "lowest at", "longest N",
                         "perplexity at N", "ratio", "verdict"},
              .rows = {}};
  for (const Extrapolation& e : all)
    table.rows.push_back({text_cell(e.group->label), count_cell(e.group->train_length),
                          perplexity_number(e.at_train_length), perplexity_number(e.best), count_cell(e.best_length),
                          count_cell(e.longest), perplexity_number(e.at_longest),
                          number_cell(e.at_longest / e.at_train_length, 3), text_cell(e.verdict())});
  return table;
}

Table saving_table(const std::vector<Saving>& all) {
  Table table{.id = "saving",
              .title = "Trained short and tested at N, against trained at N",
              .note =
                  "Changes are of the short training relative to the long one; below zero is less. "
                  "Perplexities closer than 0.5%, or than the "
                  "seeds' standard deviation, count as the same.",
              .header = {"trained short", "at", "tested at N", "its perplexity", "trained at N", "that one's",
                         "perplexity change", "verdict", "training time", "memory", "tokens/s"},
              .rows = {}};
  for (const Saving& s : all) {
    const double change = s.short_perplexity.mean / s.long_perplexity.mean - 1;
    table.rows.push_back(
        {text_cell(s.shorter->label), count_cell(s.shorter->train_length), count_cell(s.longer->train_length),
         perplexity_number(s.short_perplexity.mean), text_cell(method_title(s.longer->position)),
         perplexity_number(s.long_perplexity.mean), percent_cell(change),
         text_cell(s.same()     ? "same"
                   : change < 0 ? "better"
                                : "worse"),
         percent_cell(negated(s.time_saved)), percent_cell(negated(s.memory_saved)), percent_cell(s.speed_gained)});
  }
  return table;
}

Table cost_table(const Results& results) {
  const auto protocols = protocols_of(results);
  Table table{.id = "cost",
              .title = "What each method costs",
              .note =
                  "Evaluation at the training length. The paper's columns (Table 1: WikiText-103, 247M "
                  "parameters, one V100) "
                  "are for its nearest training length.",
              .header = {"method", "trained at", "training tokens/s", "training memory (MiB)", "evaluation tokens/s",
                         "evaluation memory (MiB)", "paper: L", "paper: training words/s", "paper: evaluation words/s",
                         "paper: memory (GB)"},
              .rows = {}};
  for (const Group& group : groups_of(results)) {
    std::optional<Stat> speed, memory;
    if (!protocols.empty()) {
      speed = group.of(&EvalRecord::tokens_per_second, protocols[0], group.train_length);
      memory = group.of(&EvalRecord::peak_memory_bytes, protocols[0], group.train_length);
    }
    const auto paper = paper_cost(group.position, group.train_length);
    const auto paper_number = [&](double PaperCost::*field, double unit, int decimals) {
      return number_cell(paper ? OptionalNumber(*paper.*field / unit) : std::nullopt, decimals);
    };
    table.rows.push_back({text_cell(group.label), count_cell(group.train_length),
                          mean_cell(group.of(&RunRecord::train_tokens_per_second), 1, 0),
                          mean_cell(group.of(&RunRecord::train_peak_memory_bytes), kMiB, 1), mean_cell(speed, 1, 0),
                          mean_cell(memory, kMiB, 1),
                          count_cell(paper ? OptionalCount(paper->train_length) : std::nullopt),
                          paper_number(&PaperCost::train_speed, 1, 0), paper_number(&PaperCost::eval_speed, 1, 0),
                          paper_number(&PaperCost::memory, 1e9, 1)});
  }
  return table;
}

Table run_table(const Results& results) {
  Table table{.id = "runs",
              .title = "Runs",
              .note = "",
              .header = {"name", "position", "trained at", "seed", "parameters", "steps", "tokens", "seconds",
                         "tokens/s", "memory (MiB)"},
              .rows = {}};
  for (const RunRecord& r : results.runs)
    table.rows.push_back({text_cell(r.name), text_cell(r.position), count_cell(r.train_length), count_cell(r.seed),
                          count_cell(r.parameters), count_cell(r.steps), count_cell(r.tokens),
                          number_cell(r.train_seconds, 1), number_cell(r.train_tokens_per_second, 0),
                          number_of(r.train_peak_memory_bytes, kMiB, 1)});
  return table;
}

Table eval_table(const Results& results) {
  Table table{.id = "evaluations",
              .title = "Every evaluation",
              .note = "Loss in nats per token with its standard error, bootstrapped over documents.",
              .header = {"run", "length", "mode", "stride", "split", "score", "tokens", "loss", "standard error",
                         "perplexity", "word perplexity", "bits per byte", "tokens/s", "memory (MiB)"},
              .rows = {}};
  for (const RunRecord& r : results.runs)
    for (const EvalRecord& e : r.evals)
      table.rows.push_back({text_cell(r.name), count_cell(e.length), text_cell(e.mode), count_cell(e.stride),
                            text_cell(e.split), text_cell(e.score), count_cell(e.tokens), number_cell(e.loss, 4),
                            number_cell(e.standard_error, 4), perplexity_number(e.perplexity),
                            perplexity_number(e.word_perplexity), number_cell(e.bits_per_byte, 4),
                            number_cell(e.tokens_per_second, 0), number_of(e.peak_memory_bytes, kMiB, 1)});
  return table;
}

Table position_loss_table(const Results& results) {
  Table table{.id = "position-loss",
              .title = "Loss by position",
              .note = "",
              .header = {"run", "from", "to", "tokens", "loss"},
              .rows = {}};
  for (const RunRecord& r : results.runs)
    for (const PositionLoss& p : r.per_position)
      table.rows.push_back(
          {text_cell(r.name), count_cell(p.from), count_cell(p.to), count_cell(p.tokens), number_cell(p.loss, 4)});
  return table;
}

Table decomposition_table(const Results& results) {
  Table table{.id = "decomposition",
              .title = "Early-token decomposition",
              .note =
                  "Change of loss against the training length, in nats per token: total = fewer early tokens + "
                  "context beyond.",
              .header = {"run", "method", "trained at", "length", "total", "fewer early tokens", "context beyond"},
              .rows = {}};
  for (const RunRecord& r : results.runs)
    for (const Decomposition& d : r.decomposition)
      table.rows.push_back({text_cell(r.name), text_cell(method_title(r.position)), count_cell(r.train_length),
                            count_cell(d.length), number_cell(d.total, 4), number_cell(d.curse_relief, 4),
                            number_cell(d.beyond, 4)});
  return table;
}

Table curve_table(const Results& results) {
  Table table{.id = "training-curves",
              .title = "Training curves",
              .note = "",
              .header = {"run", "step", "tokens", "seconds", "loss", "validation loss"},
              .rows = {}};
  for (const RunRecord& r : results.runs)
    for (const MetricsRecord& p : r.curve)
      table.rows.push_back({text_cell(r.name), count_cell(p.step), count_cell(p.tokens), number_cell(p.seconds, 2),
                            number_cell(p.loss, 4), number_cell(p.valid_loss, 4)});
  return table;
}

Table bias_table(const Results& results) {
  Table table{.id = "biases",
              .title = "Biases",
              .note = "",
              .header = {"run", "layer", "head", "distance", "bias"},
              .rows = {}};
  for (const RunRecord& r : results.runs) {
    if (!r.biases) continue;
    const size_t distances = r.biases->slopes.empty() ? r.biases->table[0].size() : 2;  // a slope needs no more
    const int64_t heads = std::min(r.biases->heads, kMostBiasMatrices);
    for (size_t h = 0; h < static_cast<size_t>(heads); ++h)
      for (size_t d = 0; d < distances; ++d)
        table.rows.push_back({text_cell(r.name), count_cell(r.biases->layer), count_cell(static_cast<int64_t>(h + 1)),
                              count_cell(static_cast<int64_t>(d)), number_cell(r.biases->at(h, d), 4)});
  }
  return table;
}

}  // namespace longshot
