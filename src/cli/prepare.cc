#include "data/prepare.h"

#include <chrono>

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

  int run() override {
    Context context(threads_);
    catch_stop_signals();
    config_.inputs = args;
    const auto start = std::chrono::steady_clock::now();
    Progress progress;
    const PrepareResult result = prepare(context, config_,
                                         {.stop = stop_requested,
                                          .progress = [&](const PrepareProgress& p) { progress.show(line(p)); },
                                          .note = [&](const std::string& text) { progress.note(text); }});
    if (!result.finished) {
      progress.note("stopped. The same command goes on from here.");
      return 1;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    progress.note(
        fmt::format("{}: {} entries in the vocabulary, {}", config_.out, result.vocab_size, duration_text(seconds)));
    for (size_t s = 0; s < kSplitNames.size(); ++s) {
      const TokenCounts& c = result.splits[s];
      if (c.tokens == 0) continue;
      fmt::print("{:<5} {:>12} tokens  {:>9} documents  {:>12} words  {:>13} bytes\n", kSplitNames[s], c.tokens,
                 c.documents, c.words, c.bytes);
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
      phase_bytes_ = p.bytes;
    }
    const double seconds = std::chrono::duration<double>(now - phase_start_).count();
    const double rate = seconds > 0 ? static_cast<double>(p.bytes - phase_bytes_) / seconds : 0;
    std::string text = fmt::format("{}: {}", p.phase, bytes_text(static_cast<double>(p.bytes)));
    if (p.total_bytes > 0) text += fmt::format(" of {}", bytes_text(static_cast<double>(p.total_bytes)));
    if (rate <= 0) return text;
    text += fmt::format(", {}/s", bytes_text(rate));
    if (p.total_bytes > p.bytes)
      text += fmt::format(", {} left", duration_text(static_cast<double>(p.total_bytes - p.bytes) / rate));
    return text;
  }

  PrepareConfig config_;
  int threads_ = 0;
  std::string phase_;
  std::chrono::steady_clock::time_point phase_start_;
  uint64_t phase_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_prepare_command() { return std::make_unique<PrepareCommand>(); }

}  // namespace longshot
