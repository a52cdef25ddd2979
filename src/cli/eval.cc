#include <cmath>

#include "base/error.h"
#include "cli/command.h"
#include "cli/evaluation.h"
#include "cli/progress.h"
#include "data/token_set.h"
#include "run/loaded_model.h"
#include "run/run_dir.h"

namespace longshot {
namespace {

class EvalCommand : public Command {
 public:
  Arguments arguments() const override { return {"RUN", 1, 1}; }

  void options(Options& o) override {
    o.add("data", data_, "token set, or a fairseq data-bin directory");
    o.add("split", split_, "which part of it");
    o.add("lengths", lengths_, "window lengths; empty: 1, 2, 4, .. 16 times the training length");
    o.add("mode", mode_, {"nonoverlapping", "sliding"}, "how windows follow each other");
    o.add("stride", stride_, "sliding: tokens scored per window; 0: a quarter of the length");
    o.add("score", score_, {"same", "all"},
          "same: a multiple of the longest length, so that every length scores the same tokens in whole windows; all: "
          "the "
          "whole split, as the reference does");
    o.add("max-tokens", max_tokens_, "score at most this many tokens; 0: all");
    o.add("batch-tokens", batch_tokens_, "tokens run at once");
    o.add("attention-epsilon", epsilon_, "far keys left out below this share of attention; negative: the model's own");
    o.add("json", json_, "write the results to this file");
    o.add("threads", threads_, "0: all cores, shared with other runs on this machine");
  }

  int run() override {
    require_usage(!data_.empty(), "longshot eval needs --data DIR, a token set made by `longshot prepare`");
    Context context(threads_);
    if (threads_ == 0) context.share_cores();
    const TokenSet set(data_);
    LoadedModel loaded = load_model(args[0]);
    require(!loaded.tokenizer || loaded.tokenizer->hash() == set.tokenizer().hash(),
            "{}: the model was trained with tokenizer {:016x}, the token set {} was made with {:016x}. Prepare the "
            "text with "
            "the model's tokenizer: --tokenizer {}",
            args[0], loaded.tokenizer->hash(), data_, set.tokenizer().hash(),
            (loaded.dir / loaded.info.tokenizer_file).string());
    require(loaded.info.model.vocab == set.tokenizer().vocab_size(), "{}: the model knows {} tokens, {} has {}",
            args[0], loaded.info.model.vocab, data_, set.tokenizer().vocab_size());
    if (epsilon_ >= 0) loaded.model->set_attention_epsilon(epsilon_);
    if (lengths_.empty()) {
      for (int64_t n = loaded.info.model.length, i = 0; i < 5; ++i, n *= 2) lengths_.push_back(n);
    }
    catch_stop_signals();
    return evaluate_all(context, loaded, set.split(split_));
  }

 private:
  int evaluate_all(Context& context, LoadedModel& loaded, const TokenFile& stream) {
    for (const int64_t length : lengths_) require_usage(length > 0, "--lengths: {} is not positive", length);
    const int64_t tokens = scored_tokens(stream, lengths_, max_tokens_, score_ == "same");
    const ModelConfig& config = loaded.info.model;
    RunRecord run{.name = args[0], .position = config.position, .train_length = config.length};
    fmt::print("{}: position {}, trained at {}\n{} tokens of '{}' scored at every length, {}\n\n", args[0],
               config.position, config.length, tokens, split_, mode_);
    fmt::print("{:>8} {:>8} {:>10} {:>9} {:>11} {:>10} {:>9} {:>11} {:>7} {:>10}\n", "length", "stride", "loss", "+-",
               "perplexity", "per word", "bits/byte", "tokens/s", "keys %", "memory");
    LossesByLength losses;
    for (const int64_t length : lengths_) {
      if (length > loaded.model->position().max_length()) {
        fmt::print("{:>8} {:>8} position method '{}' is not defined beyond {}\n", length, "-", config.position,
                   loaded.model->position().max_length());
        continue;
      }
      const int64_t sliding = stride_ > 0 ? stride_ : std::max<int64_t>(length / 4, 1);
      const EvalRequest request{.protocol = {.window = length, .stride = mode_ == "sliding" ? sliding : length},
                                .mode = mode_,
                                .split = split_,
                                .score = score_,
                                .tokens = tokens,
                                .batch_tokens = batch_tokens_};
      Evaluated evaluated = evaluate(context, *loaded.model, stream, request);
      EvalRecord& record = evaluated.record;
      const double keys = 100.0 * static_cast<double>(evaluated.tiles.seen) /
                          static_cast<double>(std::max<int64_t>(evaluated.tiles.all, 1));
      const auto number = [](const OptionalNumber& v, int digits) {
        return v ? fmt::format("{:.{}f}", *v, digits) : "-";
      };
      fmt::print("{:>8} {:>8} {:>10} {:>9} {:>11} {:>10} {:>9} {:>11} {:>7.1f} {:>10}{}\n", length, record.stride,
                 number(record.loss, 5), number(record.standard_error, 4), number(record.perplexity, 4),
                 number(record.word_perplexity, 2), number(record.bits_per_byte, 4),
                 number(record.tokens_per_second, 0), keys,
                 bytes_text(static_cast<double>(record.peak_memory_bytes.value_or(0))),
                 length > config.length ? "  beyond training length" : "");
      std::fflush(stdout);
      run.evals.push_back(std::move(record));
      if (mode_ == "nonoverlapping" && score_ == "same") losses[length] = std::move(evaluated.losses);
    }
    analyse_windows(losses, run);
    print_decomposition(run);
    const Json json = run_to_json(run);
    Json all{
        {"model", args[0]}, {"position", config.position}, {"train_length", config.length}, {"results", json["evals"]}};
    for (const char* key : {"per_position", "decomposition"})
      if (!json[key].empty()) all[key] = json[key];
    if (!json_.empty()) write_json(json_, all);
    if (fs::exists(RunDir(args[0]).config())) append_record(RunDir(args[0]).evals(), all);
    return 0;
  }

  static void print_decomposition(const RunRecord& run) {
    if (run.decomposition.empty()) return;
    fmt::print("\nwhere the difference to length {} comes from (nats per token)\n{:>8} {:>10} {:>14} {:>16}\n",
               run.train_length, "length", "total", "curse relief", "context beyond");
    for (const Decomposition& d : run.decomposition)
      fmt::print("{:>8} {:>+10.5f} {:>+14.5f} {:>+16.5f}\n", d.length, d.total, d.curse_relief, d.beyond);
  }

  std::string data_, split_ = "valid", mode_ = "nonoverlapping", score_ = "same", json_;
  std::vector<int64_t> lengths_;
  int64_t stride_ = 0, max_tokens_ = 0, batch_tokens_ = 8192;
  double epsilon_ = -1;
  int threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_eval_command() { return std::make_unique<EvalCommand>(); }

}  // namespace longshot
