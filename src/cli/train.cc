#include "base/error.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "data/token_set.h"
#include "evaluate/protocol.h"
#include "evaluate/summary.h"
#include "kernels/peak.h"
#include "train/cost.h"
#include "train/trainer.h"

namespace longshot {
namespace {

class TrainCommand : public Command {
 public:
  void options(Options& o) override {
    o.add("data", data_, "token set made by `longshot prepare`");
    o.add("out", out_, "directory of the run");
    o.add("resume", resume_, "go on from the run's last checkpoint, with the run's own options");
    o.add("resume-step", resume_step_, "go on from the checkpoint of this step instead; 0: the last");
    o.add("eval-tokens", eval_tokens_, "validation tokens per validation; 0: all");
    o.add("threads", threads_, "0: all cores, shared with other runs on this machine");
    o.add("dry-run", dry_run_, "say what memory a run takes, try one and two layers for the time, and end");
    model_.fields(o);
    train_.fields(o);
    options_ = &o;
  }

  fs::path implied_config() const override {
    const RunDir run(out_);
    return (resume_ || resume_step_ > 0) && fs::exists(run.config()) ? run.config() : fs::path();
  }

  int run() override {
    require_usage(!data_.empty(), "longshot train needs --data DIR, a token set made by `longshot prepare`");
    require_usage(!out_.empty() || dry_run_, "longshot train needs --out DIR, the directory of the run");
    Context context(threads_);
    if (threads_ == 0) context.share_cores();
    const TokenSet tokens(data_);
    model_.vocab = tokens.tokenizer().vocab_size();
    model_.validate();
    train_.validate(model_.length);
    if (dry_run_) return report_costs(context, tokens);
    Transformer model(model_, true);

    const RunDir run(out_);
    const bool going_on = resume_ || resume_step_ > 0;
    require_usage(going_on || checkpoint_steps(run).empty(), "{}: holds a run already. Use --resume, or another --out.",
                  out_);
    make_directories(run.path());
    resume_ = false, dry_run_ = false;
    const int64_t from = std::exchange(resume_step_, 0);
    write_atomically(run.config(), options_->to_toml(false));

    model.initialize(context, train_.seed);
    Trainer trainer(context, {model, tokens.split("train"), &tokens.tokenizer(), run}, train_);
    const int64_t start = going_on ? trainer.resume(from) : 0;
    if (!going_on && fs::exists(run.metrics())) fs::remove(run.metrics());
    catch_stop_signals();
    return train(context, trainer, model, tokens, start);
  }

 private:
  int train(Context& context, Trainer& trainer, Transformer& model, const TokenSet& tokens, int64_t start) {
    Progress progress;
    const double peak = measure_peak_flops(context);
    progress.note(
        fmt::format("{} parameters, position {}, length {}, {} tokens a step; {} threads, {}, peak {:.0f} GFLOP/s",
                    count_text(static_cast<double>(model.parameters().count())), model_.position, model_.length,
                    trainer.tokens_per_step(), context.threads(), instruction_set(), peak / 1e9));
    if (start > 0) progress.note(fmt::format("resumed at step {}", start));
    TrainerCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& r) {
      const double share = 100 * r.flops_per_second / peak;
      progress.show(fmt::format("{}  lr {:.2e}  {:.0f}% of peak", step_text(r), r.lr, share), r.step == r.steps);
    };
    callbacks.on_note = [&](const std::string& note) { progress.note(note); };
    callbacks.should_stop = stop_requested;
    if (tokens.has("valid") && tokens.split("valid").size() > 0) {
      const TokenFile& valid = tokens.split("valid");
      const int64_t count = eval_tokens_ > 0 ? std::min(eval_tokens_, valid.size()) : valid.size();
      callbacks.validate = [&context, &model, &valid, count, this] {
        const Protocol protocol{.window = model_.length, .stride = model_.length};
        return summarize(
                   valid,
                   score_stream(context, model, valid, protocol, count, {.document_mask = model_.document_mask}).losses)
            .loss;
      };
    }
    const Trainer::Result result = trainer.train(callbacks);
    if (!result.finished) {
      progress.note(fmt::format("stopped and saved at step {}; go on with: longshot train --resume --data {} --out {}",
                                result.step, data_, out_));
      return 1;
    }
    fmt::print("trained {} steps in {} ({} tokens/s): loss {:.4f}", result.step, duration_text(result.seconds),
               count_text(result.tokens_per_second), result.loss);
    if (callbacks.validate) {
      fmt::print(", validation loss {:.4f}, perplexity {:.3f}", result.valid_loss, std::exp(result.valid_loss));
    }
    fmt::print("\n{}\n", out_);
    return 0;
  }

  int report_costs(Context& context, const TokenSet& tokens) const {
    const TokenFile& text = tokens.split("train");
    const StepCost cost = predict_memory(context, model_, train_);
    const auto line = [](const char* what, const std::string& value) { fmt::print("{:<30}{}\n", what, value); };
    line("parameters", count_text(static_cast<double>(cost.parameters)));
    line("weights, gradients, moments", bytes_text(static_cast<double>(cost.state_bytes)));
    line("activations and scratch", bytes_text(static_cast<double>(cost.activation_bytes)));
    line("memory in all", bytes_text(static_cast<double>(cost.bytes() + peak_memory_bytes())));
    std::fflush(stdout);
    const double seconds = predict_step_seconds(context, model_, train_, text);
    const int64_t epoch = text.size() / train_.batch_tokens;
    line("a step",
         fmt::format("{:.3g} s, {} tokens/s", seconds, count_text(static_cast<double>(train_.batch_tokens) / seconds)));
    line(fmt::format("{} steps", train_.steps).c_str(), duration_text(seconds * static_cast<double>(train_.steps)));
    line("an epoch", fmt::format("{} steps, {}", epoch, duration_text(seconds * static_cast<double>(epoch))));
    return 0;
  }

  std::string data_, out_;
  bool resume_ = false, dry_run_ = false;
  int64_t resume_step_ = 0, eval_tokens_ = 0;
  int threads_ = 0;
  ModelConfig model_;
  TrainConfig train_;
  Options* options_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> make_train_command() { return std::make_unique<TrainCommand>(); }

}  // namespace longshot
