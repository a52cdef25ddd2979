#include "report/summary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/statistics.h"
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

// In what a configuration differs from the others, shortly.
std::string differences(const OptionValues& own, const std::vector<OptionValues>& all) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : own) {
    if (name == "position" || name == "length" || name == "label" || name == "variant") continue;
    const auto differs = [&](const OptionValues& other) {
      const auto found = other.find(name);
      return found == other.end() || found->second != value;
    };
    if (std::any_of(all.begin(), all.end(), differs)) parts.push_back(fmt::format("{} {}", name, value));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Groups of one method and training length get labels that tell them apart.
void tell_apart(std::span<Group> groups) {
  for (Group& group : groups) {
    const RunRecord& run = *group.runs.front();
    if (run.label) group.label = *run.label;
    const auto same = [&](const Group& other) { return &other != &group && other.runs.front()->label == run.label; };
    if (std::none_of(groups.begin(), groups.end(), same)) continue;
    const auto same_variant = [&](const Group& other) {
      return &other != &group && other.runs.front()->variant == run.variant;
    };
    const bool named = run.variant && std::none_of(groups.begin(), groups.end(), same_variant);
    const bool brief = !group.differs.empty() && group.differs.size() <= 40;
    group.label += fmt::format(" ({})", named ? *run.variant : brief ? group.differs : run.name);
  }
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
  std::vector<OptionValues> configurations;
  for (const std::string& position : positions_of(results))
    for (const int64_t length : train_lengths_of(results))
      for (const RunRecord& run : results.runs) {
        if (run.position != position || run.train_length != length) continue;
        OptionValues own = configuration_of(run);
        const auto at = static_cast<size_t>(std::ranges::find(configurations, own) - configurations.begin());
        if (at == groups.size()) {
          groups.push_back({.position = position,
                            .label = method_title(position),
                            .differs = "",
                            .train_length = length,
                            .finished = run.finished()});
          configurations.push_back(std::move(own));
        }
        groups[at].runs.push_back(&run);
      }
  for (size_t g = 0; g < groups.size(); ++g) groups[g].differs = differences(configurations[g], configurations);
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
  for (const RunRecord& run : results.runs)
    for (const EvalRecord& e : run.evals) {
      const bool fixed = e.mode == WindowMode::kSliding && !follows;
      add_once(protocols, EvalProtocol{.mode = e.mode,
                                       .split = e.split,
                                       .score = e.score,
                                       .stride = fixed ? e.stride : EvalProtocol::kStrideOfLength,
                                       .data = e.data,
                                       .tokens = e.tokens});
    }
  std::stable_partition(protocols.begin(), protocols.end(),
                        [](const EvalProtocol& p) { return p.mode == WindowMode::kNonoverlapping; });
  return protocols;
}

std::vector<int64_t> lengths_of(const Results& results, const EvalProtocol& protocol) {
  std::set<int64_t> lengths;
  for (const RunRecord& run : results.runs)
    for (const EvalRecord& e : run.evals)
      if (protocol.matches(e)) lengths.insert(e.length);
  return {lengths.begin(), lengths.end()};
}

std::string unit_of(const Results& results) { return results.data.tokenizer == "byte" ? "byte" : "token"; }

size_t most_seeds(const std::vector<Group>& groups) {
  size_t most = 0;
  for (const Group& group : groups) most = std::max(most, group.runs.size());
  return most;
}

}  // namespace longshot
