#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "evaluate/validation.h"
#include "kernels/bf16.h"
#include "kernels/peak.h"
#include "run/results.h"
#include "train/forecast.h"
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
    o.add("ranks", ranks_, "with --dry-run: on so many machines under mpirun, one process each; several: a table");
    o.add("bandwidth", bandwidth_,
          "with --ranks: of a machine's network each way, in bit, kbit, Mbit, Gbit or MB, GB a second");
    o.add("latency", latency_, "with --ranks: of a message between two machines, in us, ms or s");
  }

  bool works_in_ranks() const override { return true; }

  void implied_options(Options& o) const override { apply_implied_options(request_, o); }

  int run() override {
    for (const int64_t ranks : ranks_) {
      require_usage(ranks > 0 && ranks <= 4096 && dry_run_,
                    "--ranks {}: 1 to 4096, and with --dry-run alone; mpirun says how many there are", ranks);
    }
    const bool ranks = !world().is_alone();
    Context context(ranks && request_.threads == 0 ? threads_of_rank(world()) : request_.threads);
    if (!ranks && request_.threads == 0) context.share_cores();
    context.set_precision(request_.train.precision);
    if (dry_run_) return report_costs(context);
    catch_stop_signals();
    Progress progress;
    if (!world().is_root()) progress.mute();
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
    e.validate = validation(context, stop_requested, &world());
    e.reading = watched(progress, "reading");
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
    const Link link{parse_rate("bandwidth", bandwidth_), parse_duration("latency", latency_)};
    const TokenSet tokens(request_.data);
    ModelConfig& model = request_.model;
    TrainConfig& train = request_.train;
    model.vocab = model_vocabulary(request_, tokens);
    model.validate();
    train.validate(model.length);
    const TokenFile& text = tokens.split("train");
    const StepCost cost = predict_memory(context, model, train);
    print_line("parameters", count_text(static_cast<double>(cost.parameters)));
    if (ranks_.empty()) {
      print_line("weights, gradients, moments", bytes_text(static_cast<double>(cost.state_bytes)));
      print_line("activations", bytes_text(static_cast<double>(cost.activation_bytes)));
    }
    flush_output();
    const size_t program = peak_memory_bytes();
    const StepTrial trial = try_step(context, model, train, text);
    const size_t validation = tokens.has("valid") ? validation_bytes(context) : 0;
    const size_t beside = program + trial.scratch_bytes + validation;
    if (ranks_.empty()) {
      print_line("validation", bytes_text(static_cast<double>(validation)));
      print_line("scratch", bytes_text(static_cast<double>(trial.scratch_bytes)));
      print_line("memory in all", bytes_text(static_cast<double>(cost.bytes() + beside)));
      print_times(trial, text.size() / train.batch_tokens);
    } else {
      print_ranks(context, trial, link, beside);
    }
    return 0;
  }

  // At the length that takes most.
  size_t validation_bytes(Context& context) const {
    Transformer model(request_.model, false, Transformer::Memory::kReserved);
    size_t most = predict_validation_bytes(context, model, request_.model.length);
    for (const int64_t length : request_.train.eval_lengths)
      most = std::max(most, predict_validation_bytes(context, model, length));
    return most;
  }

  static void print_line(const std::string& what, const std::string& value) { fmt::print("{:<30}{}\n", what, value); }

  void print_times(const StepTrial& trial, int64_t epoch) const {
    const TrainConfig& train = request_.train;
    const Transformer model(request_.model, true, Transformer::Memory::kReserved);
    const double seconds = trial.compute_seconds(model, train, 1);
    print_line("a step", fmt::format("{:.3g} s, {} tokens/s", seconds,
                                     count_text(static_cast<double>(train.batch_tokens) / seconds)));
    print_line(fmt::format("{} steps", train.steps), duration_text(seconds * static_cast<double>(train.steps)));
    print_line("an epoch", fmt::format("{} steps, {}", epoch, duration_text(seconds * static_cast<double>(epoch))));
  }

  // A line for each number of ranks. `beside`: bytes beside what the layout says.
  void print_ranks(Context& context, const StepTrial& trial, const Link& link, size_t beside) const {
    const TrainConfig& train = request_.train;
    const int64_t length = request_.model.length;
    const Transformer model(request_.model, true, Transformer::Memory::kReserved, SharedGradients::kApart);
    const std::string cpu = this_machine(context.threads()).cpu;
    print_line(
        "each machine",
        fmt::format("{}, {} threads, {}: {} tokens/s as tried with {} x {} tokens on one and two layers", cpu,
                    context.threads(), arithmetic(context),
                    count_text(static_cast<double>(trial.sequences * length) / trial.pass.all(request_.model.layers)),
                    trial.sequences, length));
    print_line("network", fmt::format("{} each way, {}; a step is {} tokens", bandwidth_, latency_,
                                      count_text(static_cast<double>(train.sequences(length) * length))));
    fmt::print("\n{:>6} {:>11} {:>11} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11}\n", "ranks", "memory", "sent",
               "compute", "sending", "waiting", "step", "tokens/s", "efficiency");
    for (const int64_t count : ranks_) {
      const int ranks = static_cast<int>(count);
      const StepForecast f = forecast_step(model, train, trial, link, ranks);
      const size_t memory = predict_memory(context, request_.model, train, ranks).bytes() + beside;
      const auto s = [](double seconds) {
        return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 3 : seconds < 1000 ? 1 : 0);
      };
      fmt::print("{:>6} {:>11} {:>11} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10.1f}%\n", ranks,
                 bytes_text(static_cast<double>(memory)), bytes_text(static_cast<double>(f.bytes_sent)), s(f.compute),
                 s(f.sending), s(f.waiting), s(f.seconds()),
                 count_text(static_cast<double>(train.sequences(length) * length) / f.seconds()),
                 100 * f.alone / (static_cast<double>(ranks) * f.seconds()));
    }
    fmt::print(
        "\nMemory is of the rank that takes most, sent is what each sends in a step. Compute: of the rank that has "
        "most of\n"
        "the batch; waiting: for others, beyond what is sent behind the passes. Efficiency: of as many times "
        "the speed of one.\n");
  }

  TrainRequest request_;
  bool dry_run_ = false;
  std::vector<int64_t> ranks_;
  std::string bandwidth_ = "25Gbit", latency_ = "20us";
};

}  // namespace

std::unique_ptr<Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace longshot
