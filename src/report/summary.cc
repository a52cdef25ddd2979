#include "report/summary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/statistics.h"
#include "report/text.h"

namespace longshot {
namespace {

// True if the sliding windows of `results` have one stride for each length, e.g. half of it, rather than
// several strides at one length.
bool stride_follows_length(const Results& results) {
  std::set<int64_t> strides;
  for (const RunRecord& run : results.runs) {
    std::map<std::tuple<int64_t, std::string, Scored>, int64_t> seen;
    for (const EvalRecord& e : run.evals) {
      if (e.mode != WindowMode::kSliding) continue;
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

// Everything a number depends on but the seed, by name.
OptionValues configuration_of(const RunRecord& run) {
  OptionValues all;
  for (const auto& [name, value] : run.options)
    if (!is_immaterial(name)) all[name] = value;
  if (run.options.empty()) all["variant"] = run.variant.value_or("");
  all["position"] = run.position;
  all["length"] = fmt::to_string(run.train_length);
  if (run.label) all["label"] = *run.label;
  if (run.train_data) all["training text"] = run.train_data->substr(0, 8);
  if (!run.finished()) all["training"] = "not finished";
  if (run.evals.empty()) return all;
  const EvalRecord& eval = run.evals.front();
  if (eval.step) all["step"] = fmt::to_string(*eval.step);
  all["evaluated in"] = name_of(kPrecisions, eval.precision.value_or(Precision::kF32));
  all["scaling"] = eval.scaling.value_or("none");
  if (eval.data) all["text"] = eval.data->substr(0, 8);
  return all;
}

// How many configurations have this value of this option.
using OptionCounts = std::map<OptionValues::value_type, size_t>;

// In what a configuration differs from the others, shortly.
std::string differences(const OptionValues& own, const OptionCounts& counts, size_t configurations) {
  std::vector<std::string> parts;
  for (const auto& option : own) {
    const auto& [name, value] = option;
    if (name == "position" || name == "length" || name == "label" || name == "variant") continue;
    if (counts.at(option) < configurations) parts.push_back(fmt::format("{} {}", name, value));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Groups of one method and training length get labels that tell them apart.
void tell_apart(std::span<Group> groups) {
  std::map<std::optional<std::string>, size_t> labels, variants;
  for (const Group& group : groups) ++labels[group.runs.front()->label], ++variants[group.runs.front()->variant];
  for (Group& group : groups) {
    const RunRecord& run = *group.runs.front();
    if (run.label) group.label = *run.label;
    if (labels[run.label] == 1) continue;
    const bool named = run.variant && variants[run.variant] == 1;
    const bool brief = !group.differs.empty() && group.differs.size() <= 40;
    group.label += fmt::format(" ({})", named ? *run.variant : brief ? group.differs : run.name);
  }
}

// By method, in their order, and training length.
std::vector<const RunRecord*> in_order(const Results& results) {
  std::map<std::string, size_t> rank;
  for (const std::string& position : positions_of(results)) rank.emplace(position, rank.size());
  std::vector<const RunRecord*> runs;
  for (const RunRecord& run : results.runs) runs.push_back(&run);
  std::ranges::stable_sort(runs, {},
                           [&](const RunRecord* run) { return std::pair(rank.at(run->position), run->train_length); });
  return runs;
}

}  // namespace

bool EvalProtocol::matches(const EvalRecord& e) const {
  return e.mode == mode && e.split == split && e.score == score && e.data == data && e.tokens == tokens &&
         (mode == WindowMode::kNonoverlapping || stride == kStrideOfLength || e.stride == stride);
}

std::string EvalProtocol::windows() const {
  if (mode == WindowMode::kNonoverlapping) return "non-overlapping windows";
  return stride == kStrideOfLength ? "sliding windows" : fmt::format("sliding windows, stride {}", stride);
}

std::string EvalProtocol::text() const {
  return fmt::format("{}, {} split, {} tokens{}", windows(), split, tokens,
                     score == Scored::kSame ? ", the same at every length" : ": all of it");
}

std::optional<Stat> stat_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return Stat{.mean = mean_of(values),
              .low = *std::min_element(values.begin(), values.end()),
              .high = *std::max_element(values.begin(), values.end()),
              .deviation = standard_deviation(values),
              .count = values.size()};
}

Measured Group::perplexity(const EvalProtocol& protocol, int64_t length) const {
  Measured measured;
  for (const RunRecord* run : runs) {
    for (const EvalRecord& e : run->evals) {
      if (e.length != length || !protocol.matches(e)) continue;
      measured.asked = true;
      // exp(l + s) - exp(l), to first order; s over documents, or over stretches where there are too few of them.
      const OptionalNumber error = e.standard_error ? e.standard_error : standard_error(e.blocks);
      if (e.perplexity && error) measured.text_error = *e.perplexity * *error;
    }
  }
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

const SpeedRecord* Group::speed(SpeedWork work, int64_t length) const {
  for (const RunRecord* run : runs)
    for (const SpeedRecord& s : run->speeds)
      if (s.work == work && s.length == length) return &s;
  return nullptr;
}

std::string Group::text() const { return fmt::format("{} trained at {}", label, train_length); }

std::vector<std::string> positions_of(const Results& results) {
  std::vector<std::string> positions;
  std::set<std::string> known;
  for (const RunRecord& run : results.runs)
    if (known.insert(run.position).second) positions.push_back(run.position);
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
  std::map<OptionValues, size_t> known;
  for (const RunRecord* run : in_order(results)) {
    const auto [at, fresh] = known.try_emplace(configuration_of(*run), groups.size());
    if (fresh)
      groups.push_back({.position = run->position,
                        .label = method_title(run->position),
                        .differs = "",
                        .train_length = run->train_length,
                        .finished = run->finished()});
    groups[at->second].runs.push_back(run);
  }
  require(groups.size() <= kMostGroups,
          "{} configurations are more than the {} that can be compared. Report on fewer runs at a time.", groups.size(),
          kMostGroups);
  OptionCounts counts;
  for (const auto& [options, group] : known)
    for (const auto& option : options) ++counts[option];
  for (const auto& [options, group] : known) groups[group].differs = differences(options, counts, known.size());
  for (size_t first = 0, last = 0; first < groups.size(); first = last) {
    const auto alike = [&](const Group& g) {
      return g.position == groups[first].position && g.train_length == groups[first].train_length;
    };
    for (last = first; last < groups.size() && alike(groups[last]);) ++last;
    tell_apart(std::span(groups).subspan(first, last - first));
  }
  return groups;
}

std::vector<EvalProtocol> protocols_of(const Results& results) {
  const bool follows = stride_follows_length(results);
  std::vector<EvalProtocol> protocols;
  std::set<EvalProtocol> known;
  for (const RunRecord& run : results.runs)
    for (const EvalRecord& e : run.evals) {
      const bool fixed = e.mode == WindowMode::kSliding && !follows;
      const EvalProtocol protocol{.mode = e.mode,
                                  .split = e.split,
                                  .score = e.score,
                                  .stride = fixed ? e.stride : EvalProtocol::kStrideOfLength,
                                  .data = e.data,
                                  .tokens = e.tokens};
      if (known.insert(protocol).second) protocols.push_back(protocol);
    }
  std::stable_partition(protocols.begin(), protocols.end(),
                        [](const EvalProtocol& p) { return p.mode == WindowMode::kNonoverlapping; });
  protocols.resize(std::min(protocols.size(), kMostProtocols));
  return protocols;
}

std::vector<int64_t> lengths_of(const Results& results, const EvalProtocol& protocol) {
  std::set<int64_t> lengths;
  for (const RunRecord& run : results.runs)
    for (const EvalRecord& e : run.evals) {
      if (protocol.matches(e)) lengths.insert(e.length);
      if (lengths.size() > kMostLengths) lengths.erase(std::prev(lengths.end()));
    }
  return {lengths.begin(), lengths.end()};
}

std::string unit_of(const Results& results) { return results.data.tokenizer == "byte" ? "byte" : "token"; }

size_t most_seeds(const std::vector<Group>& groups) {
  size_t most = 0;
  for (const Group& group : groups) most = std::max(most, group.runs.size());
  return most;
}

}  // namespace longshot
