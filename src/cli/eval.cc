#include <cmath>

#include "base/error.h"
#include "base/run_dir.h"
#include "base/threads.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "data/token_set.h"
#include "evaluate/summary.h"
#include "train/checkpoint.h"

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
          "same: a multiple of the longest length, so that every length scores the same tokens in whole windows; all: the "
          "whole split, as the reference does");
    o.add("max-tokens", max_tokens_, "score at most this many tokens; 0: all");
    o.add("batch-tokens", batch_tokens_, "tokens run at once");
    o.add("attention-epsilon", epsilon_, "far keys left out below this share of attention; negative: the model's own");
    o.add("json", json_, "write the results to this file");
    o.add("threads", threads_, "0: all cores");
  }

  int run() override {
    require_usage(!data_.empty(), "longshot eval needs --data DIR, a token set made by `longshot prepare`");
    set_threads(threads_);
    const TokenSet set(data_);
    LoadedModel loaded = load_model(args[0]);
    require(!loaded.tokenizer || loaded.tokenizer->hash() == set.tokenizer().hash(),
            "{}: the model was trained with tokenizer {:016x}, the token set {} was made with {:016x}. Prepare the text with "
            "the model's tokenizer: --tokenizer {}",
            args[0], loaded.tokenizer->hash(), data_, set.tokenizer().hash(),
            (loaded.dir / loaded.info.tokenizer_file).string());
    require(loaded.info.model.vocab == set.tokenizer().vocab_size(), "{}: the model knows {} tokens, {} has {}", args[0],
            loaded.info.model.vocab, data_, set.tokenizer().vocab_size());
    if (epsilon_ >= 0) loaded.model->set_attention_epsilon(epsilon_);
    if (lengths_.empty()) {
      for (int64_t n = loaded.info.model.length, i = 0; i < 5; ++i, n *= 2) lengths_.push_back(n);
    }
    catch_stop_signals();
    return evaluate(loaded, set.split(split_));
  }

 private:
  // How many tokens every length scores.
  int64_t scored_tokens(const TokenFile& stream) const {
    const int64_t limit = max_tokens_ > 0 ? std::min(max_tokens_, stream.size()) : stream.size();
    if (score_ == "all") return limit;
    const int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    require_usage(limit >= longest, "--score same needs at least one whole window of {} tokens, there are {}; use --score all",
                  longest, limit);
    return limit / longest * longest;
  }

  int evaluate(LoadedModel& loaded, const TokenFile& stream) {
    require(stream.size() > 0, "{}: there are no tokens to score", stream.path().string());
    for (const int64_t length : lengths_) require_usage(length > 0, "--lengths: {} is not positive", length);
    const int64_t tokens = scored_tokens(stream);
    const ModelConfig& config = loaded.info.model;
    Json results = Json::array();
    fmt::print("{}: position {}, trained at {}\n{} tokens of '{}' scored at every length, {}\n\n", args[0], config.position,
               config.length, tokens, split_, mode_);
    fmt::print("{:>8} {:>8} {:>10} {:>10} {:>11} {:>10} {:>9} {:>11}\n", "length", "stride", "loss", "+-", "perplexity",
               "per word", "bits/byte", "tokens/s");
    for (const int64_t length : lengths_) {
      if (length > loaded.model->position().max_length()) {
        fmt::print("{:>8} {:>8} position method '{}' is not defined beyond {}\n", length, "-", config.position,
                   loaded.model->position().max_length());
        continue;
      }
      const EvalRecord record = evaluate_length(loaded, stream, length, tokens);
      const auto& s = record.summary;
      const auto number = [](const std::optional<double>& v, int digits) { return v ? fmt::format("{:.{}f}", *v, digits) : "-"; };
      fmt::print("{:>8} {:>8} {:>10.5f} {:>10} {:>11.4f} {:>10} {:>9} {:>11.0f}{}\n", length, record.protocol.stride, s.loss,
                 number(s.standard_error, 5), std::exp(s.loss),
                 number(s.word_loss ? std::optional(std::exp(*s.word_loss)) : std::nullopt, 2),
                 number(s.byte_loss ? std::optional(*s.byte_loss / std::log(2.0)) : std::nullopt, 4),
                 static_cast<double>(s.tokens) / record.seconds, length > config.length ? "  beyond training length" : "");
      std::fflush(stdout);
      results.push_back(record.to_json());
    }
    const Json all{{"model", args[0]}, {"position", config.position}, {"train_length", config.length}, {"results", results}};
    if (!json_.empty()) write_json(json_, all);
    if (fs::exists(RunDir(args[0]).config())) append_record(RunDir(args[0]).evals(), all);
    return 0;
  }

  EvalRecord evaluate_length(LoadedModel& loaded, const TokenFile& stream, int64_t length, int64_t tokens) {
    const int64_t sliding = stride_ > 0 ? stride_ : std::max<int64_t>(length / 4, 1);
    EvalRecord record{.protocol = {.window = length, .stride = mode_ == "sliding" ? sliding : length},
                      .mode = mode_,
                      .split = split_,
                      .score = score_};
    Progress progress;
    const auto start = std::chrono::steady_clock::now();
    ScoreOptions options{.batch_tokens = batch_tokens_, .document_mask = loaded.info.model.document_mask};
    options.should_stop = stop_requested;
    options.on_progress = [&](int64_t done) {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const double rate = static_cast<double>(done) / std::max(seconds, 1e-9);
      progress.show(fmt::format("length {}: {}/{} tokens  {} tokens/s  {} left", length, done, tokens, count_text(rate),
                                duration_text(static_cast<double>(tokens - done) / rate)));
    };
    const Scores scores = score_stream(*loaded.model, stream, record.protocol, tokens, options);
    record.summary = summarize(stream, scores.losses);
    record.seconds = scores.seconds;
    record.peak_memory_bytes = peak_memory_bytes();
    return record;
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
