#include "report/findings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "base/statistics.h"
#include "report/table.h"

namespace longshot {
namespace {

constexpr double kSmallChange = 0.005;  // of perplexity, where nothing is known of the error
constexpr double kHolds = 0.02, kBreaks = 0.5;

// The 97.5% point of Student's distribution with `freedom` degrees of freedom.
double student(size_t freedom) {
  constexpr std::array kPoints = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228};
  return freedom == 0 ? INFINITY : freedom <= kPoints.size() ? kPoints[freedom - 1] : 2.0;
}

OptionalNumber joined(const OptionalNumber& a, const OptionalNumber& b) {
  if (!a || !b) return a ? a : b;
  return std::hypot(*a, *b);
}

std::vector<const EvalRecord*> evals_at(const Spot& spot, const EvalProtocol& protocol) {
  std::vector<const EvalRecord*> evals;
  for (const RunRecord* run : spot.group.runs)
    for (const EvalRecord& e : run->evals)
      if (e.length == spot.length && protocol.matches(e) && e.loss) evals.push_back(&e);
  return evals;
}

double mean_loss(const std::vector<const EvalRecord*>& evals) {
  double sum = 0;
  for (const EvalRecord* e : evals) sum += *e->loss;
  return sum / static_cast<double>(evals.size());
}

// Mean over the seeds of each stretch of text; empty where the stretches are not known.
std::vector<double> mean_blocks(const std::vector<const EvalRecord*>& evals) {
  std::vector<double> means = evals[0]->blocks;
  for (size_t i = 1; i < evals.size(); ++i) {
    if (evals[i]->blocks.size() != means.size()) return {};
    for (size_t b = 0; b < means.size(); ++b) means[b] += evals[i]->blocks[b];
  }
  for (double& mean : means) mean /= static_cast<double>(evals.size());
  return means;
}

OptionalNumber text_half_width(const std::vector<const EvalRecord*>& a, const std::vector<const EvalRecord*>& b) {
  std::vector<double> difference = mean_blocks(a);
  const std::vector<double> other = mean_blocks(b);
  if (difference.size() >= 2 && difference.size() == other.size()) {
    for (size_t i = 0; i < other.size(); ++i) difference[i] -= other[i];
    return 1.96 * *standard_error(difference);
  }
  const OptionalNumber left = a[0]->standard_error, right = b[0]->standard_error;
  return left && right ? OptionalNumber(1.96 * std::hypot(*left, *right)) : std::nullopt;
}

std::map<int64_t, double> by_seed(const Spot& spot, const EvalProtocol& protocol) {
  std::map<int64_t, double> losses;
  for (const RunRecord* run : spot.group.runs)
    for (const EvalRecord& e : run->evals)
      if (e.length == spot.length && protocol.matches(e) && e.loss && run->seed) losses[*run->seed] = *e.loss;
  return losses;
}

// Over the seeds that both have, else over each one's own.
OptionalNumber seed_half_width(const Spot& a, const Spot& b, const EvalProtocol& protocol) {
  const auto left = by_seed(a, protocol), right = by_seed(b, protocol);
  std::vector<double> paired, ours, theirs;
  for (const auto& [seed, loss] : left) {
    ours.push_back(loss);
    if (const auto other = right.find(seed); other != right.end()) paired.push_back(loss - other->second);
  }
  for (const auto& [seed, loss] : right) theirs.push_back(loss);
  if (const auto error = standard_error(paired)) return student(paired.size() - 1) * *error;
  const auto x = standard_error(ours), y = standard_error(theirs);
  if (!x || !y) return std::nullopt;
  return student(std::min(ours.size(), theirs.size()) - 1) * std::hypot(*x, *y);
}

OptionalNumber memory_saved(const Group& shorter, const Group& longer) {
  const auto small = shorter.of(&RunRecord::train_peak_memory_bytes),
             large = longer.of(&RunRecord::train_peak_memory_bytes);
  return small && large && large->mean > 0 ? OptionalNumber(1 - small->mean / large->mean) : std::nullopt;
}

std::string change_text(double fraction, const char* less, const char* more) {
  return fmt::format("{:.0f}% {}", 100 * std::abs(fraction), fraction >= 0 ? less : more);
}

}  // namespace

std::optional<Interval> loss_difference(const Spot& a, const Spot& b, const EvalProtocol& protocol) {
  const auto left = evals_at(a, protocol), right = evals_at(b, protocol);
  if (left.empty() || right.empty()) return std::nullopt;
  return Interval{.mean = mean_loss(left) - mean_loss(right),
                  .half_width = joined(seed_half_width(a, b, protocol), text_half_width(left, right))};
}

bool is_tie(const Interval& difference) {
  return std::abs(difference.mean) <= difference.half_width.value_or(kSmallChange);
}

bool is_too_noisy(const Interval& difference) {
  return is_tie(difference) && std::abs(difference.mean) >= std::log1p(kHolds);
}

std::optional<Interval> context_beyond(const Spot& spot) {
  std::vector<double> values;
  OptionalNumber text;
  for (const RunRecord* run : spot.group.runs)
    for (const Decomposition& d : run->decomposition) {
      if (d.length != spot.length) continue;
      values.push_back(d.beyond);
      if (d.beyond_error) text = 1.96 * *d.beyond_error;
    }
  if (values.empty()) return std::nullopt;
  OptionalNumber seeds;
  if (const auto error = standard_error(values)) seeds = student(values.size() - 1) * *error;
  return Interval{.mean = mean_of(values), .half_width = joined(seeds, text)};
}

ExtraText use_of_extra_text(const Spot& spot) {
  const std::optional<Interval> beyond = context_beyond(spot);
  if (!beyond || !beyond->half_width) return ExtraText::kUnknown;
  return beyond->below_zero() ? ExtraText::kUsed : beyond->above_zero() ? ExtraText::kHarmful : ExtraText::kNotUsed;
}

std::vector<Answer> answers(const std::vector<Group>& groups, const EvalProtocol& protocol,
                            const std::vector<int64_t>& lengths) {
  std::map<std::pair<int64_t, int64_t>, Answer> all;
  for (const Group& group : groups) {
    for (const int64_t length : lengths) {
      const Measured measured = group.perplexity(protocol, length);
      if (length < group.train_length || !measured.stat) continue;
      Answer& answer = all[{group.train_length, length}];
      if (answer.best && answer.perplexity.mean <= measured.stat->mean) continue;
      answer = {.train_length = group.train_length, .length = length, .best = &group, .perplexity = *measured.stat};
    }
  }
  std::vector<Answer> list;
  for (auto& [key, answer] : all) {
    for (const Group& group : groups) {
      if (&group == answer.best || group.train_length != answer.train_length) continue;
      const auto difference = loss_difference({group, answer.length}, {*answer.best, answer.length}, protocol);
      if (difference && is_tie(*difference)) answer.ties.push_back({&group, is_too_noisy(*difference)});
    }
    list.push_back(std::move(answer));
  }
  return list;
}

const char* Extrapolation::verdict() const {
  const double ratio = at_longest / at_train_length;
  if (is_tie(change)) return std::abs(ratio - 1) < kHolds ? "holds" : "not clear";
  if (ratio >= 1 + kBreaks) return "breaks";
  return ratio >= 1 + kHolds ? "degrades" : ratio < 1 ? "improves" : "holds";
}

std::vector<Extrapolation> extrapolations(const std::vector<Group>& groups, const EvalProtocol& protocol,
                                          const std::vector<int64_t>& lengths) {
  std::vector<Extrapolation> all;
  for (const Group& group : groups) {
    const Measured start = group.perplexity(protocol, group.train_length);
    if (!start.stat) continue;
    Extrapolation e{.group = &group, .at_train_length = start.stat->mean, .best = start.stat->mean};
    e.best_length = e.holds_to = group.train_length;
    bool holds = true;
    for (const int64_t length : lengths) {
      const Measured measured = group.perplexity(protocol, length);
      if (length <= group.train_length || !measured.stat) continue;
      e.longest = length, e.at_longest = measured.stat->mean;
      e.change = *loss_difference({group, length}, {group, group.train_length}, protocol);
      if (e.at_longest < e.best) e.best = e.at_longest, e.best_length = length;
      holds = holds && e.at_longest < (1 + kHolds) * e.at_train_length;
      if (holds) e.holds_to = length;
    }
    if (e.longest > 0) all.push_back(e);
  }
  return all;
}

std::optional<SpeedRatio> speed_ratio(const SpeedRecord* a, const SpeedRecord* b) {
  if (!a || !b || b->median <= 0) return std::nullopt;
  return SpeedRatio{.ratio = a->median / b->median,
                    .clear = a->low > b->high || a->high < b->low,
                    .reliable = a->reliable() && b->reliable()};
}

std::string Saving::sentence() const {
  const double change = std::exp(difference.mean) - 1;
  std::string text =
      fmt::format("{}, tested at {}, reaches perplexity {}; {} reaches {}: {}", shorter->text(), longer->train_length,
                  perplexity_text(short_perplexity.mean), longer->text(), perplexity_text(long_perplexity.mean),
                  same() ? std::string("the same within the noise")
                         : fmt::format("{:.1f}% {}", 100 * std::abs(change), change < 0 ? "better" : "worse"));
  std::vector<std::string> parts;
  if (time_saved && speed && speed->clear && speed->reliable)
    parts.push_back(change_text(*time_saved, "less training time", "more training time"));
  if (memory_saved) parts.push_back(change_text(*memory_saved, "less memory", "more memory"));
  if (!parts.empty()) text += fmt::format(", for {}", fmt::join(parts, " and "));
  if (shorter->runs.size() < 2 || longer->runs.size() < 2) text += ". One seed: another may tell otherwise";
  return text + ".";
}

std::vector<Saving> savings(const std::vector<Group>& groups, const EvalProtocol& protocol) {
  std::vector<Saving> all;
  for (const Group& shorter : groups)
    for (const Group& longer : groups) {
      const int64_t length = longer.train_length;
      if (length <= shorter.train_length) continue;
      const Measured a = shorter.perplexity(protocol, length), b = longer.perplexity(protocol, length);
      if (!a.stat || !b.stat) continue;
      Saving saving{.shorter = &shorter, .longer = &longer, .short_perplexity = *a.stat, .long_perplexity = *b.stat};
      saving.difference = *loss_difference({shorter, length}, {longer, length}, protocol);
      saving.speed = speed_ratio(shorter.speed(SpeedWork::kTraining, shorter.train_length),
                                 longer.speed(SpeedWork::kTraining, length));
      const auto few = shorter.of(&RunRecord::tokens), many = longer.of(&RunRecord::tokens);
      if (saving.speed && few && many && many->mean > 0)
        saving.time_saved = 1 - few->mean / many->mean / saving.speed->ratio;
      saving.memory_saved = memory_saved(shorter, longer);
      all.push_back(saving);
    }
  const std::string first = groups.empty() ? "" : groups[0].position;
  const auto rank = [&](const Saving& s) {
    return std::tuple(s.shorter->position != first, s.shorter->train_length, s.longer->train_length,
                      s.longer->position != "sinusoidal");
  };
  std::stable_sort(all.begin(), all.end(), [&](const Saving& a, const Saving& b) { return rank(a) < rank(b); });
  return all;
}

std::vector<TimedLoss> validations_at(const Group& group, const RunRecord& run, int64_t length) {
  const SpeedRecord* speed = group.speed(SpeedWork::kTraining, group.train_length);
  std::vector<TimedLoss> losses;
  for (const MetricsRecord& m : run.curve) {
    OptionalNumber loss;
    if (length == run.train_length) loss = m.valid_loss;
    for (const ValidLoss& v : m.valid_losses)
      if (v.length == length) loss = v.loss;
    const OptionalNumber seconds = speed && m.tokens && speed->median > 0
                                       ? OptionalNumber(static_cast<double>(*m.tokens) / speed->median)
                                       : m.seconds;
    if (loss && seconds) losses.push_back({*seconds, *loss});
  }
  return losses;
}

namespace {

// The loss at a time, between the validations around it; nothing before the first and after the last.
OptionalNumber loss_at(const std::vector<TimedLoss>& curve, double seconds) {
  for (size_t i = 1; i < curve.size(); ++i) {
    const TimedLoss &a = curve[i - 1], &b = curve[i];
    if (seconds < a.seconds || seconds > b.seconds) continue;
    return a.loss + (b.loss - a.loss) * (seconds - a.seconds) / std::max(b.seconds - a.seconds, 1e-9);
  }
  return std::nullopt;
}

// The first time at which the loss is as low as `loss`.
OptionalNumber time_of(const std::vector<TimedLoss>& curve, double loss) {
  for (size_t i = 0; i < curve.size(); ++i) {
    if (curve[i].loss > loss) continue;
    if (i == 0) return curve[0].seconds;
    const TimedLoss &a = curve[i - 1], &b = curve[i];
    return a.seconds + (b.seconds - a.seconds) * (a.loss - loss) / (a.loss - b.loss);
  }
  return std::nullopt;
}

// Over the seeds, at the times that all of them have.
std::vector<TimedLoss> mean_validations(const Group& group, int64_t length) {
  std::vector<TimedLoss> mean;
  for (size_t r = 0; r < group.runs.size(); ++r) {
    const std::vector<TimedLoss> own = validations_at(group, *group.runs[r], length);
    if (r == 0) mean = own;
    mean.resize(std::min(mean.size(), own.size()));
    for (size_t i = 0; r > 0 && i < mean.size(); ++i) mean[i].loss += own[i].loss, mean[i].seconds += own[i].seconds;
  }
  for (TimedLoss& m : mean) {
    m.loss /= static_cast<double>(group.runs.size());
    m.seconds /= static_cast<double>(group.runs.size());
  }
  return mean;
}

}  // namespace

std::vector<Sooner> sooner(const std::vector<Group>& groups) {
  constexpr int kPoints = 5;
  std::vector<Sooner> all;
  for (const Group& shorter : groups)
    for (const Group& longer : groups) {
      if (longer.train_length <= shorter.train_length) continue;
      const auto theirs = mean_validations(longer, longer.train_length);
      const auto ours = mean_validations(shorter, longer.train_length);
      if (ours.size() < 2 || theirs.size() < 2) continue;
      Sooner s{.shorter = &shorter, .longer = &longer, .memory_saved = memory_saved(shorter, longer)};
      for (int i = 1; i <= kPoints; ++i) {
        const double share = static_cast<double>(i) / kPoints, seconds = share * theirs.back().seconds;
        const OptionalNumber loss = loss_at(theirs, seconds);
        if (!loss) continue;
        Sooner::Point point{.share = share, .perplexity = std::exp(*loss)};
        if (const auto reached = time_of(ours, *loss)) point.earlier = 1 - *reached / seconds;
        s.points.push_back(point);
      }
      if (!s.points.empty()) all.push_back(std::move(s));
    }
  return all;
}

}  // namespace longshot
