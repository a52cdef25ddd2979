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
  }

  void implied_options(Options& o) const override { apply_implied_options(request_, o); }

  int run() override {
    Context context(request_.threads);
    if (request_.threads == 0) context.share_cores();
    context.set_precision(request_.train.precision);
    if (dry_run_) return report_costs(context);
    catch_stop_signals();
    Progress progress;
    const double peak = measure_peak_flops(context);
    const TrainResult result = train_run(context, request_, events(context, progress, peak));
    if (!result.finished) {
      progress.note(fmt::format("stopped and saved at step {}; go on with: longshot train --resume --data {} --out {}",
                                result.step, request_.data, request_.out));
      return 1;
    }
    print_result(result);
    return 0;
  }

 private:
  TrainEvents events(Context& context, Progress& progress, double peak) const {
    TrainEvents e;
    e.on_start = [&context, &progress, peak, this](const Trainer& trainer, Transformer& model, int64_t step) {
      progress.note(fmt::format(
          "{} parameters, position {}, length {}, {} tokens a step; {} threads, {}, f32 peak {:.0f} GFLOP/s",
          count_text(static_cast<double>(model.parameters().count())), model.config().position, model.config().length,
          trainer.tokens_per_step(), context.threads(), arithmetic(context), peak / 1e9));
      if (step > 0) progress.note(fmt::format("resumed at step {}", step));
      if (step == 0 && !request_.from.empty()) progress.note(fmt::format("with the weights of {}", request_.from));
    };
    e.on_step = [&progress, peak](const StepReport& r) {
      const double share = 100 * r.flops_per_second / peak;
      progress.show(fmt::format("{}  lr {:.2e}  {:.0f}% of f32 peak", step_text(r), r.metrics.lr.value_or(0), share),
                    r.metrics.step == r.steps);
    };
    e.on_note = [&progress](const std::string& note) { progress.note(note); };
    e.should_stop = stop_requested;
    e.validate = validation(context, stop_requested);
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
    const StepCost cost = predict_memory(context, model, train);
    const auto line = [](const char* what, const std::string& value) { fmt::print("{:<30}{}\n", what, value); };
    line("parameters", count_text(static_cast<double>(cost.parameters)));
    line("weights, gradients, moments", bytes_text(static_cast<double>(cost.state_bytes)));
    line("activations", bytes_text(static_cast<double>(cost.activation_bytes)));
    flush_output();
    const size_t program = peak_memory_bytes();
    const auto [seconds, scratch] = try_step(context, model, train, text);
    line("scratch", bytes_text(static_cast<double>(scratch)));
    line("memory in all", bytes_text(static_cast<double>(program + cost.bytes() + scratch)));
    const int64_t epoch = text.size() / train.batch_tokens;
    line("a step",
         fmt::format("{:.3g} s, {} tokens/s", seconds, count_text(static_cast<double>(train.batch_tokens) / seconds)));
    line(fmt::format("{} steps", train.steps).c_str(), duration_text(seconds * static_cast<double>(train.steps)));
    line("an epoch", fmt::format("{} steps, {}", epoch, duration_text(seconds * static_cast<double>(epoch))));
    return 0;
  }

  TrainRequest request_;
  bool dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace longshot
