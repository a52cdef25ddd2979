#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/printable.h"
#include "cli/command.h"

namespace longshot {
namespace {

using std::chrono::steady_clock;
constexpr auto kTerminalPause = std::chrono::milliseconds(200);
constexpr auto kLogPause = std::chrono::seconds(10);
constexpr auto kPatience = std::chrono::seconds(1);  // work that takes less is not spoken of

}  // namespace

Progress::Progress() : terminal_(::isatty(STDERR_FILENO)), next_(steady_clock::now()) {}

Progress::~Progress() {
  if (open_) (void)std::fputc('\n', stderr);
}

void Progress::show(const std::string& text, bool now) {
  const auto time = steady_clock::now();
  if (muted_ || (!now && time < next_)) return;
  next_ = time + (terminal_ ? steady_clock::duration(kTerminalPause) : steady_clock::duration(kLogPause));
  if (terminal_) {
    fmt::print(stderr, "\r\033[K{}", text);
    (void)std::fflush(stderr);
    open_ = true;
  } else {
    fmt::print(stderr, "{}\n", text);
  }
}

void Progress::note(const std::string& text) {
  if (muted_) return;
  clear();
  fmt::print(stderr, "{}\n", printable(text, true));  // it may hold names from files
}

void Progress::clear() {
  if (open_) fmt::print(stderr, "\r\033[K");
  open_ = false;
}

void Progress::mute() {
  clear();
  muted_ = true;
}

Watch watched(Progress& progress, const std::string& what) {
  const auto show = [&progress, what, start = steady_clock::now()](double share) {
    if (steady_clock::now() - start > kPatience) progress.show(fmt::format("{}: {:.0f}%", what, 100 * share));
  };
  return {.on_progress = show, .should_stop = stop_requested};
}

std::string step_text(const StepReport& r) {
  const MetricsRecord& m = r.metrics;
  return fmt::format("step {}/{}  loss {:.4f}  {} tokens/s  {} left", m.step, r.steps, m.loss.value_or(NAN),
                     count_text(m.tokens_per_second.value_or(0)), duration_text(r.seconds_left));
}

std::string evaluation_text(const EvaluationCallbacks::Progress& p) {
  const Evaluation& e = p.evaluation;
  const double left = static_cast<double>(e.tokens - p.scored) / p.tokens_per_second;
  return fmt::format("{} {}: {}/{} tokens  {} tokens/s  {} left", name_of(kWindowModes, e.mode), e.windows.window,
                     p.scored, e.tokens, count_text(p.tokens_per_second), duration_text(left));
}

}  // namespace longshot
