#include "run/run_dir.h"

#include <algorithm>
#include <charconv>

namespace longshot {

bool RunDir::is_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"config.toml", "metrics.jsonl",   kEventFile, "evals.jsonl",
                                         "run.json",    "checkpoints",     "tables",   "results.csv",
                                         "report.html", "equal-time.json", "figures"};
  if (name.starts_with('.') || name.starts_with("abandoned-")) return true;
  if (name.ends_with(kUnfinished)) name.remove_suffix(std::string_view(kUnfinished).size());
  return std::ranges::find(kNames, name) != std::end(kNames);
}

std::optional<int64_t> RunDir::step_of(std::string_view name, std::string_view ending) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix) || !name.ends_with(ending)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(ending.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || name.size() < 8 || step < 0) return std::nullopt;
  return step;
}

}  // namespace longshot
