#include "data/prepare.h"

#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/progress.h"

namespace longshot {
namespace {

class PrepareCommand : public Command {
 public:
  Arguments arguments() const override { return {"[INPUT]", 0, SIZE_MAX}; }
  void options(Options& o) override {
    config_.fields(o);
    o.group("");
    o.add("threads", threads_, "0: all cores. The result is the same whatever their number");
  }

  bool works_in_ranks() const override { return true; }

  int run() override {
    if (threads_ == 0 && !world().is_alone()) threads_ = threads_of_rank(world());
    Context context(threads_);
    catch_stop_signals();
    config_.inputs = args;
    const double start = seconds_now();
    Progress progress;
    if (!world().is_root()) progress.mute();
    const PrepareResult result = prepare(context, config_,
                                         {.stop = stop_requested,
                                          .progress = [&](const PrepareProgress& p) { progress.show(line(p)); },
                                          .note = [&](const std::string& text) { progress.note(text); },
                                          .world = &world()});
    if (!result.finished) {
      progress.note("stopped. The same command goes on from here.");
      return 1;
    }
    const double seconds = seconds_now() - start;
    progress.note(
        fmt::format("{}: {} entries in the vocabulary, {}", config_.out, result.vocab_size, duration_text(seconds)));
    if (result.invalid_bytes > 0) {
      progress.note(fmt::format("{} bytes are not UTF-8 and were {}; the first: {}", result.invalid_bytes,
                                config_.invalid_utf8 == InvalidText::kKeep ? "kept" : "replaced",
                                result.first_invalid));
    }
    for (const auto& [name, c] : result.splits) {
      fmt::print("{:<5} {:>12} tokens  {:>9} documents  {:>12} words  {:>13} bytes\n", name, c.tokens, c.documents,
                 c.words, c.bytes);
    }
    return 0;
  }

 private:
  // Rate and time left are of the present phase.
  std::string line(const PrepareProgress& p) {
    const auto now = std::chrono::steady_clock::now();
    if (phase_ != p.phase) {
      phase_ = p.phase;
      phase_start_ = now;
      phase_done_ = p.done;
    }
    const auto amount = [&](double value) {
      return p.bytes ? bytes_text(value) : fmt::format("{} entries", count_text(value));
    };
    if (p.done == 0 && p.total == 0) return p.phase;
    const double seconds = std::chrono::duration<double>(now - phase_start_).count();
    const double rate = seconds > 0 ? static_cast<double>(p.done - phase_done_) / seconds : 0;
    std::string text = fmt::format("{}: {}", p.phase, amount(static_cast<double>(p.done)));
    if (p.total > 0) text += fmt::format(" of {}", amount(static_cast<double>(p.total)));
    if (rate <= 0) return text;
    text += fmt::format(", {}/s", amount(rate));
    if (p.total > p.done) text += fmt::format(", {} left", duration_text(static_cast<double>(p.total - p.done) / rate));
    return text;
  }

  PrepareConfig config_;
  int threads_ = 0;
  std::string phase_;
  std::chrono::steady_clock::time_point phase_start_;
  uint64_t phase_done_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_prepare_command() { return std::make_unique<PrepareCommand>(); }

}  // namespace longshot
