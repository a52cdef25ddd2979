#include "report/tables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

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

// "12345 ± 2%": the median and half the range of the rounds; ~ in front where other programs ran meanwhile.
Cell speed_cell(const SpeedRecord* speed) {
  Cell cell = number_cell(speed ? OptionalNumber(speed->median) : std::nullopt, 0);
  if (speed && speed->median > 0)
    cell.text = fmt::format("{}{:.0f} ± {:.0f}%", speed->reliable() ? "" : "~", speed->median,
                            50 * (speed->high - speed->low) / speed->median);
  return cell;
}

// A speed that was measured once, by the way.
Cell once_cell(const std::optional<Stat>& stat) {
  Cell cell = mean_cell(stat, 1, 0);
  if (stat) cell.text = "~" + cell.text;
  return cell;
}

Cell interval_cell(const Interval& i) {
  Cell cell = number_cell(i.mean, 4);
  cell.text = fmt::format("{:+.4f}", i.mean) + (i.half_width ? fmt::format(" ± {:.4f}", *i.half_width) : "");
  return cell;
}

Cell perplexity_at(double perplexity, int64_t length) {
  Cell cell = perplexity_number(perplexity);
  cell.text += fmt::format(" at {}", length);
  return cell;
}

std::string extra_text_words(const Spot& spot) {
  const std::optional<Interval> beyond = context_beyond(spot);
  const std::string nats = beyond ? fmt::format(" ({:+.4f})", beyond->mean) : "";
  switch (use_of_extra_text(spot)) {
    case ExtraText::kUsed:
      return "yes" + nats;
    case ExtraText::kNotUsed:
      return "not seen" + nats;
    case ExtraText::kHarmful:
      return "harmful" + nats;
    case ExtraText::kUnknown:
      break;
  }
  return "not known";
}

}  // namespace

Table answer_table(const std::vector<Answer>& all, const EvalProtocol& protocol, const std::string& unit) {
  Table table{
      .id = "answer",
      .title = "Train at L, run at N: which method?",
      .note = fmt::format(
          "Perplexity per {}; {}. Ties: differences within their 95% interval, on the same tokens and seeds; (?): "
          "too noisy to tell, 2% or more lie between them. Extra "
          "text: whether context beyond L lowers the loss, outside its error, and by how many nats; not seen: "
          "inside it. ~: other programs ran meanwhile, the speed is not to be relied on.",
          unit, protocol.text()),
      .header = {"train at L", "run at N", "best", "perplexity", "as good within the noise", "tokens/s at N",
                 "memory at N (MiB)", "uses the extra text?"},
      .rows = {}};
  for (const Answer& a : all) {
    std::vector<std::string> ties;
    for (const Answer::Tie& tie : a.ties) ties.push_back(tie.group->label + (tie.too_noisy ? " (?)" : ""));
    const auto memory = a.best->of(&EvalRecord::peak_memory_bytes, protocol, a.length);
    table.rows.push_back({count_cell(a.train_length), count_cell(a.length), text_cell(a.best->label),
                          perplexity_number(a.perplexity.mean),
                          text_cell(ties.empty() ? "–" : fmt::format("{}", fmt::join(ties, ", "))),
                          speed_cell(a.best->speed(SpeedWork::kEvaluation, a.length)), mean_cell(memory, kMiB, 1),
                          text_cell(a.length > a.train_length ? extra_text_words({*a.best, a.length}) : "–")});
  }
  return table;
}

std::vector<Table> result_tables(const Results& results) {
  std::vector<Table> tables = perplexity_tables(results);
  const std::vector<Group> groups = groups_of(results);
  const std::vector<EvalProtocol> protocols = protocols_of(results);
  if (protocols.empty()) return tables;
  const auto rows = answers(groups, protocols[0], lengths_of(results, protocols[0]));
  if (!rows.empty()) tables.push_back(answer_table(rows, protocols[0], unit_of(results)));
  return tables;
}

Table extrapolation_table(const std::vector<Extrapolation>& all) {
  Table table{
      .id = "extrapolation",
      .title = "Past the training length",
      .note =
          "Improves, degrades, breaks: outside the 95% interval of the difference, the latter two by 2% and by half "
          "of perplexity or more. Holds: within 2%. Not clear: 2% or more, but inside the interval. Holds to: the "
          "last length before the first that is 2% worse.",
      .header = {"method", "trained at L", "perplexity at L", "lowest", "at the longest N", "change of loss (nats)",
                 "verdict", "holds to", "uses the extra text?"},
      .rows = {}};
  for (const Extrapolation& e : all)
    table.rows.push_back({text_cell(e.group->label), count_cell(e.group->train_length),
                          perplexity_number(e.at_train_length), perplexity_at(e.best, e.best_length),
                          perplexity_at(e.at_longest, e.longest), interval_cell(e.change), text_cell(e.verdict()),
                          count_cell(e.holds_to), text_cell(extra_text_words({*e.group, e.longest}))});
  return table;
}

Table saving_table(const std::vector<Saving>& all) {
  Table table{
      .id = "saving",
      .title = "Trained short and tested at N, against trained at N",
      .note =
          "Changes are of the short training relative to the long one; below zero is less. Same: within the 95% "
          "interval of the paired difference. Training time follows from speeds measured in turn; ~: other programs "
          "ran meanwhile, or the rounds overlap.",
      .header = {"trained short", "at", "tested at N", "its perplexity", "trained at N", "that one's",
                 "perplexity change", "verdict", "training time", "memory"},
      .rows = {}};
  for (const Saving& s : all) {
    const double change = std::exp(s.difference.mean) - 1;
    Cell time = percent_cell(negated(s.time_saved));
    if (s.time_saved && !(s.speed && s.speed->clear && s.speed->reliable)) time.text = "~" + time.text;
    table.rows.push_back({text_cell(s.shorter->label), count_cell(s.shorter->train_length),
                          count_cell(s.longer->train_length), perplexity_number(s.short_perplexity.mean),
                          text_cell(s.longer->label), perplexity_number(s.long_perplexity.mean), percent_cell(change),
                          text_cell(s.same()     ? "same"
                                    : change < 0 ? "better"
                                                 : "worse"),
                          std::move(time), percent_cell(negated(s.memory_saved))});
  }
  return table;
}

Table sooner_table(const std::vector<Sooner>& all) {
  Table table{
      .id = "sooner",
      .title = "How much sooner",
      .note =
          "Read: after this share of its training time the model trained at N had this perplexity at N; the model "
          "trained short had it, at N, so much sooner. Between validations the loss is taken to be linear.",
      .header = {"trained short", "at", "trained at N", "N", "after", "perplexity then", "sooner by", "memory"},
      .rows = {}};
  for (const Sooner& s : all)
    for (const Sooner::Point& p : s.points) {
      Cell share = number_cell(p.share, 2), earlier = percent_cell(p.earlier);
      share.text = fmt::format("{:.0f}%", 100 * p.share);
      earlier.text =
          p.earlier ? fmt::format("{:.0f}%{}", 100 * std::abs(*p.earlier), *p.earlier < 0 ? " later" : "") : "never";
      table.rows.push_back({text_cell(s.shorter->label), count_cell(s.shorter->train_length),
                            text_cell(s.longer->label), count_cell(s.longer->train_length), std::move(share),
                            perplexity_number(p.perplexity), std::move(earlier),
                            percent_cell(negated(s.memory_saved))});
    }
  return table;
}

Table cost_table(const Results& results) {
  const auto protocols = protocols_of(results);
  Table table{.id = "cost",
              .title = "What each method costs",
              .note =
                  "Medians of rounds in turn, ± half their range; ~: other programs ran meanwhile, or it was "
                  "measured once. Evaluation at the training length. The paper's columns (Table 1: WikiText-103, 247M "
                  "parameters, one V100) are for its nearest training length.",
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
    const SpeedRecord* training = group.speed(SpeedWork::kTraining, group.train_length);
    const SpeedRecord* evaluation = group.speed(SpeedWork::kEvaluation, group.train_length);
    table.rows.push_back({text_cell(group.label), count_cell(group.train_length),
                          training ? speed_cell(training) : once_cell(group.of(&RunRecord::train_tokens_per_second)),
                          mean_cell(group.of(&RunRecord::train_peak_memory_bytes), kMiB, 1),
                          evaluation ? speed_cell(evaluation) : once_cell(speed), mean_cell(memory, kMiB, 1),
                          count_cell(paper ? OptionalCount(paper->train_length) : std::nullopt),
                          paper_number(&PaperCost::train_speed, 1, 0), paper_number(&PaperCost::eval_speed, 1, 0),
                          paper_number(&PaperCost::memory, 1e9, 1)});
  }
  return table;
}

Table configuration_table(const std::vector<Group>& groups) {
  Table table{.id = "configurations",
              .title = "What was compared",
              .note = "A row is a configuration; its seeds are averaged, and nothing else.",
              .header = {"method", "trained at", "seeds", "parameters", "steps", "differs in"},
              .rows = {}};
  for (const Group& group : groups) {
    const RunRecord& run = *group.runs.front();
    table.rows.push_back({text_cell(group.label), count_cell(group.train_length),
                          count_cell(static_cast<int64_t>(group.runs.size())), count_cell(run.parameters),
                          count_cell(run.steps), text_cell(group.differs.empty() ? "–" : group.differs)});
    if (!group.finished) table.rows.back()[4].text += fmt::format(" of {}", run.planned_steps.value_or(0));
  }
  return table;
}

std::vector<Table> paper_tables(const Results& results) {
  std::vector<Table> tables;
  const std::vector<Group> groups = groups_of(results);
  const std::vector<EvalProtocol> protocols = protocols_of(results);
  if (!protocols.empty()) {
    const auto lengths = lengths_of(results, protocols[0]);
    tables.push_back(answer_table(answers(groups, protocols[0], lengths), protocols[0], unit_of(results)));
    tables.push_back(extrapolation_table(extrapolations(groups, protocols[0], lengths)));
    tables.push_back(saving_table(savings(groups, protocols[0])));
    tables.push_back(sooner_table(sooner(groups)));
  }
  tables.push_back(configuration_table(groups));
  for (Table& table : perplexity_tables(results)) tables.push_back(std::move(table));
  for (Table table : {decomposition_table(results), cost_table(results), run_table(results)})
    tables.push_back(std::move(table));
  std::erase_if(tables, [](const Table& table) { return table.rows.empty(); });
  return tables;
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
              .note = fmt::format("Loss in nats per {} with its standard error, bootstrapped over documents.",
                                  unit_of(results)),
              .header = {"run", "length", "mode", "stride", "split", "score", "tokens", "loss", "standard error",
                         "perplexity", "word perplexity", "bits per byte", "tokens/s", "memory (MiB)"},
              .rows = {}};
  for (const RunRecord& r : results.runs)
    for (const EvalRecord& e : r.evals)
      table.rows.push_back({text_cell(r.name), count_cell(e.length), text_cell(name_of(kWindowModes, e.mode)),
                            count_cell(e.stride), text_cell(e.split), text_cell(name_of(kScored, e.score)),
                            count_cell(e.tokens), number_cell(e.loss, 4), number_cell(e.standard_error, 4),
                            perplexity_number(e.perplexity), perplexity_number(e.word_perplexity),
                            number_cell(e.bits_per_byte, 4), number_cell(e.tokens_per_second, 0),
                            number_of(e.peak_memory_bytes, kMiB, 1)});
  return table;
}

Table position_loss_table(const Results& results) {
  Table table{.id = "position-loss",
              .title = "Loss by position",
              .note = fmt::format("Nats per {}; standard errors over windows.", unit_of(results)),
              .header = {"run", "from", "to", "tokens", "loss", "standard error"},
              .rows = {}};
  for (const RunRecord& r : results.runs)
    for (const PositionLoss& p : r.per_position)
      table.rows.push_back({text_cell(r.name), count_cell(p.from), count_cell(p.to), count_cell(p.tokens),
                            number_cell(p.loss, 4), number_cell(p.standard_error, 4)});
  return table;
}

Table decomposition_table(const Results& results) {
  Table table{
      .id = "decomposition",
      .title = "Early-token decomposition",
      .note = fmt::format(
          "Change of loss against the training length L, in nats per {}, each with its standard error over stretches "
          "of the text: total = curse relief (fewer early tokens) + context beyond L.",
          unit_of(results)),
      .header = {"run", "method", "trained at L", "length", "total", "±", "curse relief", "±", "context beyond L", "±"},
      .rows = {}};
  for (const RunRecord& r : results.runs)
    for (const Decomposition& d : r.decomposition)
      table.rows.push_back({text_cell(r.name), text_cell(method_title(r.position)), count_cell(r.train_length),
                            count_cell(d.length), number_cell(d.total, 4), number_cell(d.total_error, 4),
                            number_cell(d.curse_relief, 4), number_cell(d.curse_relief_error, 4),
                            number_cell(d.beyond, 4), number_cell(d.beyond_error, 4)});
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
