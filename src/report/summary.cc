#include "report/summary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "report/table.h"
#include "report/text.h"

namespace longshot {
namespace {

template <class T>
void add_once(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

// True if the sliding windows of `results` have one stride for each length, e.g. half of it, rather than
// several strides at one length.
bool stride_follows_length(const Results& results) {
  std::set<int64_t> strides;
  for (const RunRecord& run : results.runs) {
    std::map<std::tuple<int64_t, std::string, std::string>, int64_t> seen;
    for (const EvalRecord& e : run.evals) {
      if (e.mode != "sliding") continue;
      strides.insert(e.stride);
      const auto [it, fresh] = seen.try_emplace({e.length, e.split, e.score}, e.stride);
      if (!fresh && it->second != e.stride) return false;
    }
  }
  return strides.size() > 1;
}

template <class Field>
std::optional<Stat> stat_of_runs(const Group& group, Field RunRecord::*field) {
  std::vector<double> values;
  for (const RunRecord* run : group.runs)
    if (run->*field) values.push_back(static_cast<double>(*(run->*field)));
  return stat_of(values);
}

template <class Field>
std::optional<Stat> stat_of_evals(const Group& group, Field EvalRecord::*field, const EvalProtocol& protocol,
                                  int64_t length) {
  std::vector<double> values;
  for (const RunRecord* run : group.runs)
    for (const EvalRecord& e : run->evals)
      if (e.length == length && protocol.matches(e) && e.*field) values.push_back(static_cast<double>(*(e.*field)));
  return stat_of(values);
}

OptionalNumber saved(const std::optional<Stat>& shorter, const std::optional<Stat>& longer) {
  if (!shorter || !longer || longer->mean <= 0) return std::nullopt;
  return 1 - shorter->mean / longer->mean;
}

std::string change_text(double fraction, const char* less, const char* more) {
  return fmt::format("{:.0f}% {}", 100 * std::abs(fraction), fraction >= 0 ? less : more);
}

}  // namespace

bool EvalProtocol::matches(const EvalRecord& e) const {
  return e.mode == mode && e.split == split && e.score == score &&
         (mode == "nonoverlapping" || stride == kStrideOfLength || e.stride == stride);
}

std::string EvalProtocol::windows() const {
  if (mode == "nonoverlapping") return "non-overlapping windows";
  return stride == kStrideOfLength ? "sliding windows" : fmt::format("sliding windows, stride {}", stride);
}

std::string EvalProtocol::text() const {
  return fmt::format("{}, {} split, {}", windows(), split,
                     score == "same" ? "the same tokens scored at every length" : "all tokens scored");
}

std::optional<Stat> stat_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  Stat stat{.mean = std::accumulate(values.begin(), values.end(), 0.0) / n,
            .low = *std::min_element(values.begin(), values.end()),
            .high = *std::max_element(values.begin(), values.end()),
            .count = values.size()};
  double squares = 0;
  for (const double v : values) squares += (v - stat.mean) * (v - stat.mean);
  if (values.size() > 1) stat.deviation = std::sqrt(squares / (n - 1));
  return stat;
}

Measured Group::perplexity(const EvalProtocol& protocol, int64_t length) const {
  Measured measured;
  for (const RunRecord* run : runs)
    for (const EvalRecord& e : run->evals)
      measured.asked = measured.asked || (e.length == length && protocol.matches(e));
  measured.stat = of(&EvalRecord::perplexity, protocol, length);
  return measured;
}

std::optional<Stat> Group::of(OptionalNumber RunRecord::*field) const { return stat_of_runs(*this, field); }
std::optional<Stat> Group::of(OptionalCount RunRecord::*field) const { return stat_of_runs(*this, field); }
std::optional<Stat> Group::of(OptionalNumber EvalRecord::*field, const EvalProtocol& protocol, int64_t length) const {
  return stat_of_evals(*this, field, protocol, length);
}
std::optional<Stat> Group::of(OptionalCount EvalRecord::*field, const EvalProtocol& protocol, int64_t length) const {
  return stat_of_evals(*this, field, protocol, length);
}

std::string Group::text() const { return fmt::format("{} trained at {}", label, train_length); }

std::vector<std::string> positions_of(const Results& results) {
  std::vector<std::string> positions;
  for (const RunRecord& run : results.runs) add_once(positions, run.position);
  std::stable_partition(positions.begin(), positions.end(), [](const std::string& p) { return p == "alibi"; });
  return positions;
}

std::vector<int64_t> train_lengths_of(const Results& results) {
  std::set<int64_t> lengths;
  for (const RunRecord& run : results.runs) lengths.insert(run.train_length);
  return {lengths.begin(), lengths.end()};
}

std::vector<Group> groups_of(const Results& results) {
  std::vector<Group> groups;
  for (const std::string& position : positions_of(results))
    for (const int64_t length : train_lengths_of(results)) {
      const size_t first = groups.size();
      for (const RunRecord& run : results.runs) {
        if (run.position != position || run.train_length != length) continue;
        const std::string variant = run.variant.value_or("");
        const auto same = [&](const Group& g) { return g.variant == variant; };
        auto group = std::find_if(groups.begin() + static_cast<int64_t>(first), groups.end(), same);
        if (group == groups.end()) {
          groups.push_back(
              {.position = position, .variant = variant, .label = method_title(position), .train_length = length});
          group = groups.end() - 1;
        }
        group->runs.push_back(&run);
      }
      if (groups.size() - first < 2) continue;
      for (size_t g = first; g < groups.size(); ++g)
        groups[g].label +=
            fmt::format(" ({})", groups[g].variant.empty() ? groups[g].runs[0]->name : groups[g].variant);
    }
  return groups;
}

std::vector<EvalProtocol> protocols_of(const Results& results) {
  const bool follows = stride_follows_length(results);
  std::vector<EvalProtocol> protocols;
  for (const RunRecord& run : results.runs)
    for (const EvalRecord& e : run.evals) {
      const bool fixed = e.mode == "sliding" && !follows;
      add_once(protocols, EvalProtocol{e.mode, e.split, e.score, fixed ? e.stride : EvalProtocol::kStrideOfLength});
    }
  std::stable_partition(protocols.begin(), protocols.end(),
                        [](const EvalProtocol& p) { return p.mode == "nonoverlapping"; });
  return protocols;
}

std::vector<int64_t> lengths_of(const Results& results, const EvalProtocol& protocol) {
  std::set<int64_t> lengths;
  for (const RunRecord& run : results.runs)
    for (const EvalRecord& e : run.evals)
      if (protocol.matches(e)) lengths.insert(e.length);
  return {lengths.begin(), lengths.end()};
}

const char* Extrapolation::verdict() const {
  const double ratio = at_longest / at_train_length;
  return ratio < 0.995 ? "improves" : ratio < 1.02 ? "holds" : ratio < 1.5 ? "degrades" : "breaks";
}

std::vector<Extrapolation> extrapolations(const std::vector<Group>& groups, const EvalProtocol& protocol,
                                          const std::vector<int64_t>& lengths) {
  std::vector<Extrapolation> all;
  for (const Group& group : groups) {
    const Measured start = group.perplexity(protocol, group.train_length);
    if (!start.stat) continue;
    Extrapolation e{.group = &group, .at_train_length = start.stat->mean, .best = start.stat->mean};
    e.best_length = group.train_length;
    for (const int64_t length : lengths) {
      const Measured measured = group.perplexity(protocol, length);
      if (length <= group.train_length || !measured.stat) continue;
      e.longest = length, e.at_longest = measured.stat->mean;
      if (e.at_longest < e.best) e.best = e.at_longest, e.best_length = length;
    }
    if (e.longest > 0) all.push_back(e);
  }
  return all;
}

bool Saving::same() const {
  const double difference = std::abs(short_perplexity.mean - long_perplexity.mean);
  const double spread = std::max(short_perplexity.deviation, long_perplexity.deviation);
  return difference <= std::max(0.005 * long_perplexity.mean, spread);
}

std::string Saving::sentence() const {
  const double change = short_perplexity.mean / long_perplexity.mean - 1;
  std::string text =
      fmt::format("{}, tested at {}, reaches perplexity {}; {} reaches {}: {}", shorter->text(), longer->train_length,
                  perplexity_text(short_perplexity.mean), longer->text(), perplexity_text(long_perplexity.mean),
                  same() ? std::string("the same within the spread")
                         : fmt::format("{:.1f}% {}", 100 * std::abs(change), change < 0 ? "better" : "worse"));
  std::vector<std::string> parts;
  if (time_saved) parts.push_back(change_text(*time_saved, "less training time", "more training time"));
  if (memory_saved) parts.push_back(change_text(*memory_saved, "less memory", "more memory"));
  if (!parts.empty()) text += fmt::format(", for {}", fmt::join(parts, " and "));
  return text + ".";
}

std::vector<Saving> savings(const std::vector<Group>& groups, const EvalProtocol& protocol) {
  std::vector<Saving> all;
  for (const Group& shorter : groups)
    for (const Group& longer : groups) {
      if (longer.train_length <= shorter.train_length) continue;
      const Measured a = shorter.perplexity(protocol, longer.train_length);
      const Measured b = longer.perplexity(protocol, longer.train_length);
      if (!a.stat || !b.stat) continue;
      Saving saving{.shorter = &shorter, .longer = &longer, .short_perplexity = *a.stat, .long_perplexity = *b.stat};
      saving.time_saved = saved(shorter.of(&RunRecord::train_seconds), longer.of(&RunRecord::train_seconds));
      saving.memory_saved =
          saved(shorter.of(&RunRecord::train_peak_memory_bytes), longer.of(&RunRecord::train_peak_memory_bytes));
      const auto fast = shorter.of(&RunRecord::train_tokens_per_second),
                 slow = longer.of(&RunRecord::train_tokens_per_second);
      if (fast && slow && slow->mean > 0) saving.speed_gained = fast->mean / slow->mean - 1;
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

}  // namespace longshot
