#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "evaluate/validation.h"
#include "kernels/bf16.h"
#include "kernels/peak.h"
#include "train/cost.h"
#include "train/train_run.h"

namespace longshot {
namespace {

class TrainCommand : public Command {
 public:
  void options(Options& o) override {
    request_.fields(o);
    o.group("this call");
    o.add("resume", request_.resume, "go on from the run's last checkpoint, with the run's own options");
    o.add("resume-step", request_.resume_step,
          "go on from the checkpoint of this step instead; later ones move to RUN/abandoned-K; 0: the last");
    o.add("dry-run", dry_run_, "say what memory a run takes, try one and two layers for the time, and end");
    o.add("ranks", ranks_, "with --dry-run: of so many processes under mpirun");
    o.add("rank-timeout", rank_timeout_,
          "under mpirun: seconds without a word from another rank, then training ends; longer than a step, a save, a "
          "validation");
  }

  bool works_in_ranks() const override { return true; }

  void implied_options(Options& o) const override { apply_implied_options(request_, o); }

  int run() override {
    require_usage(rank_timeout_ > 0, "--rank-timeout must be positive, not {}", rank_timeout_);
    require_usage(ranks_ > 0 && ranks_ <= 4096 && (ranks_ == 1 || dry_run_),
                  "--ranks {}: 1 to 4096, and with --dry-run alone; mpirun says how many there are", ranks_);
    world().set_patience(rank_timeout_);
    const bool ranks = !world().is_alone();
    Context context(ranks && request_.threads == 0 ? threads_of_rank(world()) : request_.threads);
    if (!ranks && request_.threads == 0) context.share_cores();
    context.set_precision(request_.train.precision);
    if (dry_run_) return report_costs(context);
    catch_stop_signals();
    if (ranks) catch_forwarded_signal();
    Progress progress;
    const double peak = measure_peak_flops(context);
    const TrainResult result = train_run(context, request_, events(context, progress, peak), &world());
    if (!result.finished) {
      if (world().is_root())
        progress.note(
            fmt::format("stopped and saved at step {}; go on with: longshot train --resume --data {} --out {}",
                        result.step, request_.data, request_.out));
      return 1;
    }
    print_result(result);
    return 0;
  }

 private:
  TrainEvents events(Context& context, Progress& progress, double peak) const {
    TrainEvents e;
    e.should_stop = stop_requested;
    e.validate = validation(context, stop_requested);
    if (!world().is_root()) return e;
    e.on_start = [&context, &progress, peak, this](const Trainer& trainer, Transformer& model, int64_t step) {
      progress.note(fmt::format(
          "{} parameters, position {}, length {}, {} tokens a step; {}{} threads, {}, f32 peak {:.0f} GFLOP/s",
          count_text(static_cast<double>(model.parameters().count())), model.config().position, model.config().length,
          trainer.tokens_per_step(), world().is_alone() ? "" : fmt::format("{} ranks, each ", world().size()),
          context.threads(), arithmetic(context), peak / 1e9));
      if (!trainer.sums_as_one()) {
        progress.note(
            fmt::format("--batch-groups {} does not divide among {} ranks: the last bits are not those of "
                        "another number of ranks",
                        request_.train.batch_groups, world().size()));
      }
      if (step > 0) progress.note(fmt::format("resumed at step {}", step));
      if (step == 0 && !request_.from.empty()) progress.note(fmt::format("with the weights of {}", request_.from));
    };
    e.on_step = [&progress, peak, ranks = world().size()](const StepReport& r) {
      const double share = 100 * r.flops_per_second / (peak * ranks);
      progress.show(fmt::format("{}  lr {:.2e}  {:.0f}% of f32 peak", step_text(r), r.metrics.lr.value_or(0), share),
                    r.metrics.step == r.steps);
    };
    e.on_note = [&progress](const std::string& note) { progress.note(note); };
    return e;
  }

  void print_result(const TrainResult& r) const {
    fmt::print("{} {} steps in {} ({} tokens/s): loss {:.4f}",
               r.updates > 0 ? "trained" : "nothing left to do: the run is finished, with", r.step,
               duration_text(r.seconds), count_text(r.tokens_per_second), r.loss.value_or(NAN));
    if (r.valid_loss) {
      fmt::print(", validation loss {:.4f}, perplexity {:.3f}", *r.valid_loss, std::exp(*r.valid_loss));
    }
    fmt::print("\n{}\n", printable(request_.out));
  }

  int report_costs(Context& context) {
    require_usage(!request_.data.empty(), "longshot train needs --data DIR, a token set made by `longshot prepare`");
    const TokenSet tokens(request_.data);
    ModelConfig& model = request_.model;
    TrainConfig& train = request_.train;
    model.vocab = model_vocabulary(request_, tokens);
    model.validate();
    train.validate(model.length);
    const TokenFile& text = tokens.split("train");
    const StepCost cost = predict_memory(context, model, train, static_cast<int>(ranks_));
    const auto line = [](const char* what, const std::string& value) { fmt::print("{:<30}{}\n", what, value); };
    line("parameters", count_text(static_cast<double>(cost.parameters)));
    line(ranks_ > 1 ? "weights, gradients, its moments" : "weights, gradients, moments",
         bytes_text(static_cast<double>(cost.state_bytes)));
    line("activations", bytes_text(static_cast<double>(cost.activation_bytes)));
    flush_output();
    const size_t program = peak_memory_bytes();
    const auto [seconds, scratch] = try_step(context, model, train, text);
    line("scratch", bytes_text(static_cast<double>(scratch)));
    line("memory in all", bytes_text(static_cast<double>(program + cost.bytes() + scratch)));
    if (ranks_ > 1) return 0;  // the trial was of one process
    const int64_t epoch = text.size() / train.batch_tokens;
    line("a step",
         fmt::format("{:.3g} s, {} tokens/s", seconds, count_text(static_cast<double>(train.batch_tokens) / seconds)));
    line(fmt::format("{} steps", train.steps).c_str(), duration_text(seconds * static_cast<double>(train.steps)));
    line("an epoch", fmt::format("{} steps, {}", epoch, duration_text(seconds * static_cast<double>(epoch))));
    return 0;
  }

  TrainRequest request_;
  bool dry_run_ = false;
  int64_t ranks_ = 1;
  double rank_timeout_ = 300;
};

}  // namespace

std::unique_ptr<Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace longshot
