#include "run/run_dir.h"

#include <algorithm>
#include <charconv>

namespace longshot {

bool RunDir::is_name(std::string_view name) {
  if (name.starts_with('.') || name.starts_with(kAbandoned)) return true;
  if (name.ends_with(kUnfinished)) name.remove_suffix(std::string_view(kUnfinished).size());
  const RunDir run{fs::path()};
  const ExperimentDir pages{fs::path()};  // of one run
  const fs::path known[] = {run.config(),    run.metrics(),    run.events(),      run.evals(),
                            run.record(),    run.equal_time(), run.checkpoints(), pages.report(),
                            pages.figures(), pages.tables(),   pages.numbers()};
  return std::ranges::find(known, fs::path(name)) != std::end(known);
}

std::optional<int64_t> RunDir::step_of(std::string_view name, std::string_view ending) {
  constexpr std::string_view kPrefix = kStep;
  if (!name.starts_with(kPrefix) || !name.ends_with(ending)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(ending.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || name.size() < 8 || step < 0) return std::nullopt;
  return step;
}

}  // namespace longshot
