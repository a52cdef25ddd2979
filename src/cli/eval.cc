#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "data/token_set.h"
#include "evaluate/evaluation.h"
#include "kernels/peak.h"
#include "run/loaded_model.h"

namespace longshot {
namespace {

class EvalCommand : public Command {
 public:
  Arguments arguments() const override { return {"RUN", 1, 1}; }

  void options(Options& o) override {
    o.add("data", data_, "token set, or a fairseq data-bin directory");
    o.add("split", config_.split, "which part of it");
    o.add("lengths", config_.lengths, "window lengths; empty: 1, 2, 4, .. 16 times the training length");
    o.add("mode", config_.modes[0], kWindowModes, "how windows follow each other");
    o.add("stride", config_.stride, "sliding: tokens scored per window; 0: a quarter of the length");
    o.add("score", config_.scored, kScored,
          "same: as many tokens as all lengths cut into whole windows, so that every length scores the same; all: the "
          "whole split, as the reference does");
    o.add("max-tokens", config_.max_tokens, "score at most this many tokens; 0: all");
    o.add("batch-tokens", config_.batch_tokens, "tokens run at once");
    o.add("json", json_, "write the results to this file");
    o.add("losses", losses_, "write every scored token's loss to this file, .csv or .safetensors");
    model_.fields(o);
    options_ = &o;
  }

  bool works_in_ranks() const override { return true; }

  int run() override {
    require_usage(!data_.empty(), "longshot eval needs --data DIR, a token set made by `longshot prepare`");
    if (!world().is_root()) progress_.mute();
    world().on_root([this] {
      for (const std::string& file : {json_, losses_})
        if (!file.empty()) require_writable(file);
    });
    require_usage(losses_.empty() || losses_.ends_with(".csv") || losses_.ends_with(".safetensors"),
                  "--losses {}: the file must end in .csv or .safetensors", losses_);
    model_.validate();
    if (model_.threads == 0 && !world().is_alone()) model_.threads = threads_of_rank(world());
    const TokenSet set(data_);
    std::optional<ModelSession> read;
    world().on_each([&] { read.emplace(model_, args[0], progress_); });
    ModelSession& session = *read;
    const LoadedModel& loaded = session.loaded;
    require_same_tokenizer(set, vocabulary_of(loaded.info, loaded.dir, args[0]));
    const TokenFile& stream = set.split(config_.split);
    EvaluationPlan plan = plan_evaluations(config_, reach_of(*loaded.model), stream);
    plan.world = &world();
    world().on_each([&] { stream.verify(); });
    agree(stream, session);
    print_heading(loaded, plan);
    const Evaluated evaluated =
        evaluate(session.context, {*loaded.model, loaded.info.weights, loaded.info.step}, stream, plan, callbacks());
    if (!evaluated.finished) {
      progress_.note("stopped; nothing is recorded");
      return 1;
    }
    if (!world().is_root()) return 0;
    print_decomposition(plan, evaluated);
    record(loaded, evaluated);
    if (!losses_.empty()) write_losses(losses_, stream, evaluated.losses, watched(progress_, "writing the losses"));
    return 0;
  }

 private:
  void agree(const TokenFile& stream, const ModelSession& session) {
    require_same_work(world(), *options_,
                      {{"the hash of the text", hex(stream.data_hash())},
                       {"the checksum of the weights", session.loaded.info.weights},
                       {"the way of calculating", arithmetic(session.context)}});
  }

  EvaluationCallbacks callbacks() {
    EvaluationCallbacks callbacks;
    callbacks.should_stop = stop_requested;
    callbacks.on_progress = [this](const EvaluationCallbacks::Progress& p) { progress_.show(evaluation_text(p)); };
    callbacks.on_done = [this](const EvaluationCallbacks::Done& done) {
      progress_.clear();
      print_row(done);
    };
    return callbacks;
  }

  void print_heading(const LoadedModel& loaded, const EvaluationPlan& plan) {
    progress_.clear();
    train_length_ = plan.train_length;
    fmt::print("{}: position {}, trained at {}{}{}\n", printable(args[0]), loaded.info.model.position,
               plan.train_length, plan.scaling ? ", run with " : "", plan.scaling.value_or(""));
    if (!plan.evaluations.empty()) {
      fmt::print("{} tokens of '{}' scored at every length, {}\n\n", plan.evaluations[0].tokens, plan.split,
                 name_of(kWindowModes, config_.modes[0]));
    }
    for (const int64_t length : plan.undefined) {
      fmt::print("{:>8} {:>8} position method '{}' is not defined beyond {}\n", length, "-", loaded.info.model.position,
                 loaded.model->position().max_length());
    }
    fmt::print("{:>8} {:>8} {:>10} {:>9} {:>11} {:>10} {:>9} {:>11} {:>7} {:>10}\n", "length", "stride", "loss", "+-",
               "perplexity", "per word", "bits/byte", "tokens/s", "keys %", "memory");
  }

  void print_row(const EvaluationCallbacks::Done& done) const {
    const EvalRecord& record = done.record;
    const auto number = [](const OptionalNumber& v, int digits) {
      return v ? fmt::format("{:.{}f}", *v, digits) : "-";
    };
    const double keys =
        100.0 * static_cast<double>(done.tiles.seen) / static_cast<double>(std::max<int64_t>(done.tiles.all, 1));
    fmt::print("{:>8} {:>8} {:>10} {:>9} {:>11} {:>10} {:>9} {:>11} {:>7.1f} {:>10}{}\n", record.length, record.stride,
               number(record.loss, 5), number(record.standard_error, 4), number(record.perplexity, 4),
               number(record.word_perplexity, 2), number(record.bits_per_byte, 4), number(record.tokens_per_second, 0),
               keys, bytes_text(static_cast<double>(record.peak_memory_bytes.value_or(0))),
               record.length > train_length_ ? "  beyond training length" : "");
    flush_output();
  }

  static void print_decomposition(const EvaluationPlan& plan, const Evaluated& evaluated) {
    if (evaluated.decomposition.empty()) return;
    fmt::print(
        "\nwhere the difference to length {} comes from (nats per token, standard errors over stretches of the text)\n"
        "{:>8} {:>20} {:>20} {:>20}\n",
        plan.train_length, "length", "total", "curse relief", "context beyond");
    const auto term = [](double value, const OptionalNumber& error) {
      return fmt::format("{:+.5f} +- {}", value, error ? fmt::format("{:.5f}", *error) : "?");
    };
    for (const Decomposition& d : evaluated.decomposition) {
      fmt::print("{:>8} {:>20} {:>20} {:>20}\n", d.length, term(d.total, d.total_error),
                 term(d.curse_relief, d.curse_relief_error), term(d.beyond, d.beyond_error));
    }
  }

  // As --json's object, and as a line of the run's own records.
  void record(const LoadedModel& loaded, const Evaluated& evaluated) const {
    const EvaluationLine line{.model = args[0],
                              .position = loaded.info.model.position,
                              .train_length = loaded.info.model.length,
                              .results = evaluated.records,
                              .per_position = evaluated.per_position,
                              .decomposition = evaluated.decomposition};
    if (!json_.empty()) write_json(json_, line.to_json());
    if (fs::exists(RunDir(args[0]).config())) append_record(RunDir(args[0]).evals(), line.to_json());
  }

  std::string data_, json_, losses_;
  EvaluationConfig config_;
  ModelOptions model_;
  Options* options_ = nullptr;
  int64_t train_length_ = 0;
  Progress progress_;
};

}  // namespace

std::unique_ptr<Command> make_eval_command() { return std::make_unique<EvalCommand>(); }

}  // namespace longshot
