#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "dist/group.h"
#include "evaluate/evaluate_run.h"
#include "kernels/peak.h"

namespace longshot {
namespace {

class EvalCommand : public Command {
 public:
  Arguments arguments() const override { return {"RUN", 1, 1}; }

  void options(Options& o) override {
    o.add("data", request_.data, "token set, or a fairseq data-bin directory");
    EvaluationConfig& config = request_.config;
    o.add("split", config.split, "which part of it");
    o.add("lengths", config.lengths, "window lengths; empty: 1, 2, 4, .. 16 times the training length");
    o.add("mode", config.modes[0], kWindowModes, "how windows follow each other");
    o.add("stride", config.stride, "sliding: tokens scored per window; 0: a quarter of the length");
    o.add("score", config.scored, kScored,
          "same: as many tokens as all lengths cut into whole windows, so that every length scores the same; all: the "
          "whole split, as the reference does");
    o.add("max-tokens", config.max_tokens, "score at most this many tokens; 0: all");
    o.add("batch-tokens", config.batch_tokens, "tokens run at once");
    o.add(
        "ranks-per-window", request_.ranks_per_window,
        "under mpirun: ranks that run a window together, each a stretch of it, in a part of the memory; 0: all, where "
        "windows beyond 4096 tokens are fewer than ranks, else 1");
    o.add("json", json_, "write the results to this file");
    o.add("losses", request_.losses, "write every scored token's loss to this file, .csv or .safetensors");
    model_.fields(o);
    options_ = &o;
  }

  bool works_in_ranks() const override { return true; }

  int run() override {
    request_.run = args[0];
    if (request_.ranks_per_window != 0) require_groups(world(), request_.ranks_per_window, "--ranks-per-window");
    if (!world().is_root()) progress_.mute();
    world().on_root([this] {
      request_.validate();
      if (!json_.empty()) require_writable(json_);
    });
    model_.validate();
    if (model_.threads == 0 && !world().is_alone()) model_.threads = threads_of_rank(world());
    std::optional<ModelSession> read;
    world().on_each([&] { read.emplace(model_, args[0], progress_); });
    ModelSession& session = *read;
    const auto [evaluated, line] =
        evaluate_run(session.context, session.loaded, request_, callbacks(session), &world());
    if (!evaluated.finished) {
      progress_.note("stopped; nothing is recorded");
      return 1;
    }
    if (!world().is_root()) return 0;
    print_decomposition(evaluated);
    if (!json_.empty()) write_json(json_, line.to_json());
    return 0;
  }

 private:
  void agree(const TokenFile& stream, const ModelSession& session) {
    require_same_work(world(), *options_,
                      {{"the hash of the text", hex(stream.data_hash())},
                       {"the checksum of the weights", session.loaded.info.weights},
                       {"the way of calculating", arithmetic(session.context)}});
  }

  RunEvaluationCallbacks callbacks(const ModelSession& session) {
    RunEvaluationCallbacks callbacks;
    callbacks.should_stop = stop_requested;
    callbacks.reading = watched(progress_, "reading the text");
    callbacks.writing = watched(progress_, "writing the losses");
    callbacks.on_start = [this, &session](const TokenFile& stream, const EvaluationPlan& plan) {
      agree(stream, session);
      print_heading(session.loaded, plan);
    };
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
                 name_of(kWindowModes, request_.config.modes[0]));
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
    if (done.halo.ranks > 1)
      fmt::print(
          "{:>8} {} ranks shared each window: of a head in a layer one got at most {} keys from others, all got {}\n",
          "", done.halo.ranks, done.halo.keys, bytes_text(static_cast<double>(done.halo.bytes)));
    flush_output();
  }

  void print_decomposition(const Evaluated& evaluated) const {
    if (evaluated.decomposition.empty()) return;
    fmt::print(
        "\nwhere the difference to length {} comes from (nats per token, standard errors over stretches of the text)\n"
        "{:>8} {:>20} {:>20} {:>20}\n",
        train_length_, "length", "total", "curse relief", "context beyond");
    const auto term = [](double value, const OptionalNumber& error) {
      return fmt::format("{:+.5f} +- {}", value, error ? fmt::format("{:.5f}", *error) : "?");
    };
    for (const Decomposition& d : evaluated.decomposition) {
      fmt::print("{:>8} {:>20} {:>20} {:>20}\n", d.length, term(d.total, d.total_error),
                 term(d.curse_relief, d.curse_relief_error), term(d.beyond, d.beyond_error));
    }
  }

  EvaluationRequest request_;
  std::string json_;
  ModelOptions model_;
  Options* options_ = nullptr;
  int64_t train_length_ = 0;
  Progress progress_;
};

}  // namespace

std::unique_ptr<Command> make_eval_command() { return std::make_unique<EvalCommand>(); }

}  // namespace longshot
