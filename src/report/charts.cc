#include "report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "report/paper.h"
#include "report/text.h"

namespace longshot {
namespace {

struct RunPoint {
  double x = 0, y = 0;
  OptionalNumber error{};  // standard error, of one run
};
using Points = std::vector<RunPoint>;

// What a point's low and high span, as chart_point, averaged and perplexity_points fill them.
const char* spread_of(const Group& group) {
  return group.runs.size() > 1 ? "the seeds" : "two standard errors either way";
}

// The place of a group among those of its label, which differ in the training length: 0, 1, 2, ..
int dash_of(const std::vector<Group>& groups, const Group& group) {
  int before = 0;
  for (const Group& other : groups)
    before += other.label == group.label && other.train_length < group.train_length ? 1 : 0;
  return before % 4;
}

ChartPoint chart_point(double x, const Stat& stat) {
  ChartPoint point{.x = x, .y = stat.mean, .low = {}, .high = {}};
  if (stat.count > 1) point.low = stat.low, point.high = stat.high;
  return point;
}

std::string sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

// Mean and spread over a group's seeds at each x that all finite values share; of one seed, two standard errors.
std::vector<ChartPoint> averaged(const Group& group, const std::function<Points(const RunRecord&)>& points_of) {
  std::map<double, std::vector<double>> values;
  std::map<double, OptionalNumber> errors;
  for (const RunRecord* run : group.runs)
    for (const RunPoint& p : points_of(*run)) values[p.x].push_back(p.y), errors[p.x] = p.error;
  std::vector<ChartPoint> points;
  for (const auto& [x, ys] : values) {
    points.push_back(chart_point(x, *stat_of(ys)));
    const OptionalNumber& error = errors[x];
    if (ys.size() == 1 && error) points.back().low = ys[0] - 2 * *error, points.back().high = ys[0] + 2 * *error;
  }
  return points;
}

// At most `most` points, the first and the last among them.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, size_t most) {
  if (points.size() <= most) return points;
  std::vector<ChartPoint> few;
  for (size_t i = 0; i < most; ++i) few.push_back(points[i * (points.size() - 1) / (most - 1)]);
  return few;
}

std::vector<Group> groups_at(const std::vector<Group>& groups, int64_t train_length) {
  std::vector<Group> some;
  std::copy_if(groups.begin(), groups.end(), std::back_inserter(some),
               [&](const Group& g) { return g.train_length == train_length; });
  return some;
}

Axis length_axis(const Results& results, const std::vector<int64_t>& lengths) {
  return {.label = fmt::format("test length ({}s)", unit_of(results)),
          .log = true,
          .ticks = {lengths.begin(), lengths.end()}};
}

Mark train_mark(int64_t length) { return {static_cast<double>(length), fmt::format("trained at {}", length)}; }

std::vector<ChartPoint> perplexity_points(const Group& group, const EvalProtocol& protocol,
                                          const std::vector<int64_t>& lengths) {
  std::vector<ChartPoint> points;
  for (const int64_t length : lengths) {
    const Measured m = group.perplexity(protocol, length);
    if (!m.stat) continue;
    points.push_back(chart_point(static_cast<double>(length), *m.stat));
    if (m.stat->count > 1 || !m.text_error) continue;
    points.back().low = m.stat->mean - 2 * *m.text_error;
    points.back().high = m.stat->mean + 2 * *m.text_error;
  }
  return points;
}

// The paper's curve, shifted along both log axes so that it starts where ours stands at the training length:
// x = L N / L_paper, y = ppl(L) ppl_paper(N) / ppl_paper(L_paper).
std::optional<Series> paper_overlay(const Group& group, const EvalProtocol& protocol, int colour, double longest) {
  const auto curve = paper_curve(group.position, group.train_length);
  const Measured start = group.perplexity(protocol, group.train_length);
  if (!curve || !start.stat || curve->points.empty()) return std::nullopt;
  Series series{
      .label = fmt::format("{}, paper", group.label), .colour = colour, .dash = 2, .overlay = true, .points = {}};
  for (const auto& [length, perplexity] : curve->points) {
    const double x = static_cast<double>(group.train_length) * static_cast<double>(length) /
                     static_cast<double>(curve->train_length);
    if (x <= longest) series.points.push_back({x, start.stat->mean * perplexity / curve->points[0].perplexity, {}, {}});
  }
  return series;
}

// One chart per training length, a line per method; `points_of` gives a run's points.
std::vector<Chart> charts_by_length(const Results& results, const Chart& model,
                                    const std::function<Points(const RunRecord&)>& points_of, bool mark_length) {
  std::vector<Chart> charts;
  const auto positions = positions_of(results);
  const auto groups = groups_of(results);
  for (const int64_t length : train_lengths_of(results)) {
    Chart chart = model;
    chart.id += fmt::format("-L{}", length);
    chart.title += fmt::format(", trained at {}", length);
    if (mark_length) chart.marks.push_back(train_mark(length));
    for (const Group& group : groups_at(groups, length)) {
      Series series{.label = group.label,
                    .colour = colour_of(groups, group.label),
                    .spread = spread_of(group),
                    .points = thinned(averaged(group, points_of), 300)};
      if (!series.points.empty()) chart.series.push_back(std::move(series));
    }
    if (!chart.empty()) charts.push_back(std::move(chart));
  }
  return charts;
}

// Median and range of the rounds; nothing where it was not measured in turn: a speed taken once says little.
std::optional<Stat> measured_speed(const Group& group, SpeedWork work, int64_t length) {
  const SpeedRecord* speed = group.speed(work, length);
  if (!speed) return std::nullopt;
  return Stat{.mean = speed->median, .low = speed->low, .high = speed->high, .count = 2};
}

struct Cost {
  const char* id;
  const char* title;
  std::function<std::optional<Stat>(const Group&)> measured;
  double PaperCost::*paper;
  const char* spread;
};

}  // namespace

int colour_of(const std::vector<Group>& groups, const std::string& label) {
  std::set<std::string_view> before;
  for (const Group& group : groups) {
    if (group.label == label) break;
    before.insert(group.label);
  }
  return static_cast<int>(before.size()) % kGrey;
}

std::string reference_method(const Results& results) {
  const auto positions = positions_of(results);
  for (const char* wanted : {"sinusoidal", "none"})
    if (std::find(positions.begin(), positions.end(), wanted) != positions.end()) return wanted;
  return positions.empty() ? "" : positions[0];
}

int64_t main_train_length(const std::vector<Group>& groups) {
  std::map<int64_t, int> methods;
  for (const Group& group : groups) ++methods[group.train_length];
  int64_t best = 0;
  for (const auto& [length, count] : methods)
    if (best == 0 || count > methods[best]) best = length;
  return best;
}

std::vector<Chart> perplexity_charts(const Results& results) {
  std::vector<Chart> charts;
  const auto positions = positions_of(results);
  const auto groups = groups_of(results);
  const auto protocols = protocols_of(results);
  for (size_t p = 0; p < protocols.size(); ++p) {
    const auto lengths = lengths_of(results, protocols[p]);
    for (const int64_t train_length : train_lengths_of(results)) {
      Chart chart{.id = fmt::format("perplexity-{}-L{}", p + 1, train_length),
                  .title = fmt::format("Trained at {}, {}", train_length, protocols[p].windows()),
                  .note = sentence(protocols[p].text()),
                  .x = length_axis(results, lengths),
                  .y = {.label = fmt::format("perplexity per {}", unit_of(results)), .log = true},
                  .marks = {train_mark(train_length)}};
      std::vector<Series> overlays;
      for (const Group& group : groups_at(groups, train_length)) {
        const int colour = colour_of(groups, group.label);
        Series series{.label = group.label,
                      .colour = colour,
                      .spread = spread_of(group),
                      .points = perplexity_points(group, protocols[p], lengths)};
        if (series.points.empty()) continue;
        chart.series.push_back(std::move(series));
        auto overlay = paper_overlay(group, protocols[p], colour, static_cast<double>(lengths.back()));
        if (overlay && protocols[p].mode == WindowMode::kNonoverlapping) overlays.push_back(std::move(*overlay));
      }
      chart.series.insert(chart.series.end(), overlays.begin(), overlays.end());
      // A single point is a baseline that was tested at its own length only: the grid shows it.
      const bool line = std::any_of(chart.series.begin(), chart.series.end(),
                                    [](const Series& s) { return !s.overlay && s.points.size() > 1; });
      if (line) charts.push_back(std::move(chart));
    }
  }
  share_y_range(charts);
  return charts;
}

Chart grid_chart(const Results& results) {
  const auto protocols = protocols_of(results);
  const auto train_lengths = train_lengths_of(results);
  if (protocols.empty() || train_lengths.size() < 2) return {};
  const EvalProtocol& protocol = protocols[0];
  const auto lengths = lengths_of(results, protocol);
  const auto positions = positions_of(results);
  const auto groups = groups_of(results);
  Chart chart{
      .id = "grid",
      .title = fmt::format("{} trained short, against training at the tested length", method_title(positions[0])),
      .note = fmt::format("{} Lines that begin at a training length: one model tested further and further. "
                          "The others: a model trained anew for each length.",
                          sentence(protocol.text())),
      .x = length_axis(results, lengths),
      .y = {.label = fmt::format("perplexity per {}", unit_of(results)), .log = true}};
  for (const Group& group : groups) {
    if (group.position != positions[0]) continue;
    Series series{.label = group.text(),
                  .colour = colour_of(groups, group.label),
                  .dash = dash_of(groups, group),
                  .spread = spread_of(group),
                  .points = {}};
    for (const ChartPoint& p : perplexity_points(group, protocol, lengths))
      if (p.x >= static_cast<double>(group.train_length)) series.points.push_back(p);
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  for (size_t i = 1; i < positions.size(); ++i) {
    Series series{.label = fmt::format("{} trained at the tested length", method_title(positions[i])), .points = {}};
    for (const Group& group : groups)
      if (const Measured m = group.perplexity(protocol, group.train_length); group.position == positions[i] && m.stat)
        series.colour = colour_of(groups, group.label),
        series.points.push_back(chart_point(static_cast<double>(group.train_length), *m.stat));
    if (series.points.size() > 1) chart.series.push_back(std::move(series));
  }
  return chart;
}

std::vector<Chart> position_loss_charts(const Results& results) {
  const Chart model{
      .id = "positions",
      .title = "Loss by position",
      .note = "Mean loss of the tokens that have so many tokens of context, from one pass over the longest windows.",
      .x = {.label = fmt::format("{}s of context", unit_of(results)), .log = true},
      .y = {.label = fmt::format("loss (nats per {})", unit_of(results))}};
  auto charts = charts_by_length(
      results, model,
      [](const RunRecord& run) {
        Points points;
        for (const PositionLoss& p : run.per_position)  // the middle of the bin; t = 0 stands at 1 on the log axis
          if (p.loss) points.push_back({1 + static_cast<double>(p.from + p.to - 1) / 2, *p.loss, p.standard_error});
        return points;
      },
      true);
  share_y_range(charts);
  return charts;
}

std::vector<Chart> decomposition_charts(const Results& results) {
  struct Term {
    const char* id;
    const char* title;
    const char* note;
    double Decomposition::*field;
    OptionalNumber Decomposition::*error;
  };
  const Term terms[] = {{"relief", "Curse relief: fewer early tokens",
                         "Part of the change that comes from a smaller share of tokens with little context. "
                         "Below zero: a gain.",
                         &Decomposition::curse_relief, &Decomposition::curse_relief_error},
                        {"beyond", "Context beyond L",
                         "Part of the change that comes from tokens with more context than was trained. "
                         "Below zero: the model uses it; above: it is harmed.",
                         &Decomposition::beyond, &Decomposition::beyond_error}};
  std::vector<Chart> charts;
  for (const Term& term : terms) {
    std::set<int64_t> lengths;
    for (const RunRecord& run : results.runs)
      for (const Decomposition& d : run.decomposition) lengths.insert(d.length);
    const Chart model{.id = term.id,
                      .title = term.title,
                      .note = term.note,
                      .x = length_axis(results, {lengths.begin(), lengths.end()}),
                      .y = {.label = fmt::format("change of loss (nats per {})", unit_of(results))}};
    const auto made = charts_by_length(
        results, model,
        [&](const RunRecord& run) {
          Points points;
          for (const Decomposition& d : run.decomposition)
            points.push_back({static_cast<double>(d.length), d.*term.field, d.*term.error});
          return points;
        },
        true);
    charts.insert(charts.end(), made.begin(), made.end());
  }
  // Both terms of one training length side by side.
  std::vector<Chart> paired;
  for (size_t i = 0; i < charts.size() / 2; ++i)
    paired.push_back(charts[i]), paired.push_back(charts[i + charts.size() / 2]);
  share_y_range(paired);
  return paired;
}

std::vector<Chart> cost_charts(const Results& results) {
  const auto groups = groups_of(results);
  const int64_t length = main_train_length(groups);
  const auto here = groups_at(groups, length);
  const std::string reference = reference_method(results);
  const Cost costs[] = {
      {"train-speed", "Training speed", [&](const Group& g) { return measured_speed(g, SpeedWork::kTraining, length); },
       &PaperCost::train_speed, "the rounds of measuring"},
      {"eval-speed", "Evaluation speed",
       [&](const Group& g) { return measured_speed(g, SpeedWork::kEvaluation, length); }, &PaperCost::eval_speed,
       "the rounds of measuring"},
      {"train-memory", "Memory in training", [](const Group& g) { return g.of(&RunRecord::train_peak_memory_bytes); },
       &PaperCost::memory, "the seeds"}};
  std::vector<Chart> charts;
  const auto base = std::find_if(here.begin(), here.end(), [&](const Group& g) { return g.position == reference; });
  if (base == here.end()) return charts;
  const auto paper_base = paper_cost(reference, length);
  for (const Cost& cost : costs) {
    Chart chart{
        .id = cost.id,
        .title = cost.title,
        .note = fmt::format("Relative to {}, trained at {}.{}", method_title(reference), length,
                            paper_base ? fmt::format(" The paper's: WikiText-103, 247M parameters, L = {}, one V100.",
                                                     paper_base->train_length)
                                       : ""),
        .kind = Chart::Kind::kBars,
        .x = {},
        .y = {.label = fmt::format("relative to {}", method_title(reference))}};
    Series ours{.label = "measured", .colour = 0, .spread = cost.spread, .points = {}};
    Series paper{.label = "paper", .colour = kGrey, .points = {}};
    const auto unit = cost.measured(*base);
    if (!unit || unit->mean <= 0) continue;
    for (const Group& group : here) {
      const auto x = static_cast<double>(chart.categories.size());
      chart.categories.push_back(group.label);
      if (const auto stat = cost.measured(group))
        ours.points.push_back({x, stat->mean / unit->mean, stat->low / unit->mean, stat->high / unit->mean});
      if (const auto theirs = paper_cost(group.position, length); theirs && paper_base)
        paper.points.push_back({x, *theirs.*cost.paper / (*paper_base.*cost.paper), {}, {}});
    }
    chart.series.push_back(std::move(ours));
    if (!paper.points.empty()) chart.series.push_back(std::move(paper));
    charts.push_back(std::move(chart));
  }
  return charts;
}

std::vector<Chart> training_charts(const Results& results) {
  const auto drawn = [&](const char* id, const char* title, const char* note, OptionalNumber MetricsRecord::*field) {
    const Chart model{.id = id,
                      .title = title,
                      .note = note,
                      .x = {.label = "training steps"},
                      .y = {.label = fmt::format("loss (nats per {})", unit_of(results))}};
    const auto points_of = [&](const RunRecord& run) {
      Points points;
      for (const MetricsRecord& p : run.curve)
        if (p.*field) points.push_back({static_cast<double>(p.step), *(p.*field)});
      return points;
    };
    return charts_by_length(results, model, points_of, false);
  };
  auto charts = drawn("training", "Training loss", "Mean loss of the training batches.", &MetricsRecord::loss);
  const auto valid = drawn("validation", "Validation loss", "Taken at the training length while training.",
                           &MetricsRecord::valid_loss);
  charts.insert(charts.end(), valid.begin(), valid.end());
  for (Chart& chart : charts) leave_out_start(chart);
  share_y_range(charts);
  return charts;
}

std::vector<Chart> time_charts(const Results& results) {
  std::vector<Chart> charts;
  const auto positions = positions_of(results);
  const auto groups = groups_of(results);
  std::set<int64_t> lengths;
  for (const RunRecord& run : results.runs)
    for (const MetricsRecord& m : run.curve)
      for (const ValidLoss& v : m.valid_losses) lengths.insert(v.length);
  for (const int64_t length : lengths) {
    Chart chart{
        .id = fmt::format("time-N{}", length),
        .title = fmt::format("Perplexity at {} while training", length),
        .note = fmt::format("Validation in windows of {}. Time is that of training alone, at the speed measured in "
                            "turn where it was.",
                            length),
        .x = {.label = "training time (seconds)"},
        .y = {.label = fmt::format("perplexity per {}", unit_of(results)), .log = true}};
    for (const Group& group : groups) {
      const auto points_of = [&](const RunRecord& run) {
        Points points;
        for (const TimedLoss& t : validations_at(group, run, length)) points.push_back({t.seconds, std::exp(t.loss)});
        return points;
      };
      Series series{.label = group.text(),
                    .colour = colour_of(groups, group.label),
                    .dash = dash_of(groups, group),
                    .spread = spread_of(group),
                    .points = thinned(averaged(group, points_of), 300)};
      if (series.points.size() > 1) chart.series.push_back(std::move(series));
    }
    if (!chart.empty()) charts.push_back(std::move(chart));
  }
  for (Chart& chart : charts) leave_out_start(chart);
  share_y_range(charts);
  return charts;
}

std::vector<Chart> all_charts(const Results& results) {
  std::vector<Chart> all = perplexity_charts(results);
  const auto add = [&](const std::vector<Chart>& charts) { all.insert(all.end(), charts.begin(), charts.end()); };
  if (const Chart grid = grid_chart(results); !grid.empty()) all.push_back(grid);
  add(position_loss_charts(results));
  add(decomposition_charts(results));
  add(cost_charts(results));
  add(training_charts(results));
  add(time_charts(results));
  return all;
}

}  // namespace longshot
