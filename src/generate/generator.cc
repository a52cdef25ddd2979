#include "generate/generator.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "generate/text_stream.h"
#include "model/inference.h"

namespace longshot {
namespace {

constexpr int64_t kPromptPiece = 1024;  // tokens of a prompt that run at once

void require_fit(const LoadedModel& loaded, int64_t prompt, int64_t made) {
  const int64_t reach = loaded.model->position().max_length();
  require_usage(
      prompt + made <= reach,
      "{} tokens of prompt (the start among them) and {} to be made are {}, but position method '{}' is not defined "
      "beyond {}",
      prompt, made, prompt + made, loaded.info.model.position, reach);
}

class Generation {
 public:
  Generation(Context& context, LoadedModel& loaded, std::span<const int32_t> prompt, const GenerationConfig& config)
      : config_(config),
        tokenizer_(*loaded.tokenizer),
        vocab_(loaded.info.model.vocab),
        end_(end_of_document(*loaded.tokenizer)),
        inputs_{loaded.tokenizer->start_id()},
        count_(static_cast<size_t>(config.samples)) {
    inputs_.insert(inputs_.end(), prompt.begin(), prompt.end());
    const auto length = static_cast<int64_t>(inputs_.size());
    require_fit(loaded, length, config.max_tokens);
    inference_.emplace(context, *loaded.model,
                       Inference::Config{.sequences = config.samples,
                                         .tokens = std::min(length, kPromptPiece),
                                         .capacity = length + config.max_tokens});
    log_p_.resize(count_ * static_cast<size_t>(vocab_));
    generated_.samples.resize(count_);
    open_.assign(count_, true);
    for (size_t s = 0; s < count_; ++s) streams_.emplace_back(tokenizer_, inputs_, config.stop);
  }

  Generated run(const GenerationCallbacks& callbacks) {
    const double start = seconds_now();
    try {
      if (config_.max_tokens > 0) read_prompt(callbacks);
    } catch (const Stopped&) {
      return finish(callbacks, start, Ended::kAsked);
    }
    for (int64_t step = 0; step < config_.max_tokens && is_open(); ++step) {
      if (callbacks.should_stop()) return finish(callbacks, start, Ended::kAsked);
      if (step > 0) run_step();
      take(step, callbacks);
      if (step == 0) generated_.first_seconds = seconds_now() - start;
    }
    return finish(callbacks, start, Ended::kLength);
  }

 private:
  bool is_open() const { return std::ranges::count(open_, true) > 0; }

  void read_prompt(const GenerationCallbacks& callbacks) {
    const auto length = static_cast<int64_t>(inputs_.size());
    for (int64_t first = 0; first < length; first += kPromptPiece) {
      const int64_t piece = std::min(kPromptPiece, length - first);
      std::vector<int32_t> rows;  // [samples, piece]
      for (size_t s = 0; s < count_; ++s)
        rows.insert(rows.end(), inputs_.begin() + first, inputs_.begin() + first + piece);
      inference_->log_probabilities(
          {.inputs = rows, .length = piece, .first_key = {}, .watch = {.should_stop = callbacks.should_stop}},
          piece - 1, {log_p_.data(), static_cast<int64_t>(count_), vocab_});
    }
  }

  // The last token of every sample that is open; those that are not stand still.
  void run_step() {
    std::vector<int32_t> rows(count_, tokenizer_.start_id());
    std::vector<int64_t> counts(count_, 0);
    for (size_t s = 0; s < count_; ++s)
      if (open_[s]) rows[s] = generated_.samples[s].ids.back(), counts[s] = 1;
    inference_->log_probabilities({.inputs = rows, .length = 1, .first_key = {}, .counts = counts}, 0,
                                  {log_p_.data(), static_cast<int64_t>(count_), vocab_});
  }

  void take(int64_t step, const GenerationCallbacks& callbacks) {
    for (size_t s = 0; s < count_; ++s) {
      if (!open_[s]) continue;
      Sample& sample = generated_.samples[s];
      const std::span<const float> row =
          std::span(log_p_).subspan(s * static_cast<size_t>(vocab_), static_cast<size_t>(vocab_));
      const double uniform =
          uniform01(random_bits(config_.sampling.seed + s, Stream::kSample, static_cast<uint64_t>(step)));
      const int32_t id = draw(candidates(row, before(sample), config_.sampling), uniform);
      sample.ids.push_back(id);
      sample.log_p.push_back(row[static_cast<size_t>(id)]);
      if (id == end_ && !config_.ignore_end) {
        close(s, Ended::kDocument, callbacks);
        continue;
      }
      show(s, streams_[s].push(id), callbacks);
      if (streams_[s].stopped()) close(s, Ended::kStop, callbacks);
    }
  }

  // Prompt and what was made, as far back as repetition looks.
  std::vector<int32_t> before(const Sample& sample) const {
    if (config_.sampling.repetition_penalty == 1) return {};
    std::vector<int32_t> ids(inputs_.begin() + 1, inputs_.end());
    ids.insert(ids.end(), sample.ids.begin(), sample.ids.end());
    return ids;
  }

  void show(size_t s, const std::string& text, const GenerationCallbacks& callbacks) {
    if (text.empty()) return;
    generated_.samples[s].text += text;
    callbacks.on_text(static_cast<int64_t>(s), text);
  }

  void close(size_t s, Ended ended, const GenerationCallbacks& callbacks) {
    show(s, streams_[s].finish(), callbacks);
    generated_.samples[s].ended = ended;
    open_[s] = false;
  }

  Generated finish(const GenerationCallbacks& callbacks, double start, Ended ended) {
    for (size_t s = 0; s < count_; ++s)
      if (open_[s]) close(s, ended, callbacks);
    generated_.seconds = seconds_now() - start;
    return std::move(generated_);
  }

  const GenerationConfig& config_;
  const Tokenizer& tokenizer_;
  int64_t vocab_;
  std::optional<int32_t> end_;
  std::vector<int32_t> inputs_;  // the start id and the prompt
  size_t count_;
  std::optional<Inference> inference_;
  std::vector<float> log_p_;  // [samples, vocabulary]
  std::vector<bool> open_;
  std::vector<TextStream> streams_;
  Generated generated_;
};

}  // namespace

void GenerationConfig::fields(Options& o) {
  o.add("max-tokens", max_tokens, "tokens to make at most");
  o.add("samples", samples, "texts to make at once; sample i has the seed + i");
  o.add("stop", stop, "text that ends a sample, and is no part of it");
  o.add("ignore-eos", ignore_end, "go on behind the end of a document");
  sampling.fields(o);
}

void GenerationConfig::validate() const {
  constexpr int64_t kMostSamples = 4096, kMostTokens = int64_t{1} << 30;
  require_usage(max_tokens >= 0 && max_tokens <= kMostTokens, "--max-tokens: {} is not between 0 and {}", max_tokens,
                kMostTokens);
  require_usage(samples > 0 && samples <= kMostSamples, "--samples: {} is not between 1 and {}", samples, kMostSamples);
  sampling.validate();
}

std::optional<int32_t> end_of_document(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  tokenizer.end_document('\n', ids);
  return ids.empty() ? std::nullopt : std::optional(ids.back());
}

Generated generate(Context& context, LoadedModel& loaded, std::span<const int32_t> prompt,
                   const GenerationConfig& config, const GenerationCallbacks& callbacks) {
  config.validate();
  require(loaded.tokenizer != nullptr, "{}: no tokenizer travelled with this model", loaded.dir.string());
  for (const int32_t id : prompt)
    require(id >= 0 && id < loaded.info.model.vocab, "id {} is outside the vocabulary of {}", id,
            loaded.info.model.vocab);
  return Generation(context, loaded, prompt, config).run(callbacks);
}

}  // namespace longshot
