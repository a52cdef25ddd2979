#include "generate/continuation.h"

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"

namespace longshot {
namespace {

std::vector<int32_t> with_start(const LoadedModel& loaded, std::span<const int32_t> prompt) {
  const int64_t vocab = loaded.info.model.vocab;
  std::vector<int32_t> ids{loaded.required_tokenizer().start_id()};
  for (const int32_t id : prompt) {
    require_usage(id >= 0 && id < vocab, "id {} is outside the vocabulary of {}", id, vocab);
    ids.push_back(id);
  }
  return ids;
}

void require_fit(const LoadedModel& loaded, int64_t prompt, int64_t made) {
  const int64_t reach = loaded.model->position().max_length();
  require_usage(
      prompt + made <= reach,
      "{} tokens of prompt (the start among them) and {} to be made are {}, but position method '{}' is not defined "
      "beyond {}",
      prompt, made, prompt + made, loaded.info.model.position, reach);
}

std::vector<TokenChance> likeliest(std::span<const float> log_p, int64_t count) {
  std::vector<TokenChance> all(log_p.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = {static_cast<int32_t>(i), log_p[i]};
  const auto end = all.begin() + std::min<int64_t>(count, static_cast<int64_t>(all.size()));
  std::partial_sort(all.begin(), end, all.end(), [](const TokenChance& a, const TokenChance& b) {
    return a.log_p != b.log_p ? a.log_p > b.log_p : a.id < b.id;
  });
  return {all.begin(), end};
}

}  // namespace

void GenerationConfig::fields(Options& o) {
  o.add("max-tokens", max_tokens, "tokens to make at most");
  o.add("samples", samples, "texts to make at once; sample i has the seed + i");
  o.add("stop", stop, "text that ends a sample, and is no part of it");
  o.add("ignore-eos", ignore_end, "go on behind the end of a document");
  o.add("context", context, "tokens that a token may see, itself among them; 0: all");
  sampling.fields(o);
}

void GenerationConfig::validate() const {
  constexpr int64_t kMostSamples = 4096, kMostTokens = int64_t{1} << 30;
  require_usage(max_tokens >= 0 && max_tokens <= kMostTokens, "--max-tokens: {} is not between 0 and {}", max_tokens,
                kMostTokens);
  require_usage(samples > 0 && samples <= kMostSamples, "--samples: {} is not between 1 and {}", samples, kMostSamples);
  require_usage(context >= 0, "--context must not be negative, but is {}", context);
  for (const std::string& text : stop) require_usage(!text.empty(), "--stop: a text to stop at must not be empty");
  sampling.validate();
}

std::optional<int32_t> end_of_document(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  tokenizer.end_document('\n', ids);
  return ids.empty() ? std::nullopt : std::optional(ids.back());
}

Continuation::Continuation(const LoadedModel& loaded, TextRequest request)
    : request_(std::move(request)),
      ids_(with_start(loaded, request_.prompt)),
      inputs_(ids_.size()),
      stream_(*loaded.tokenizer, ids_, request_.config.stop) {
  request_.config.validate();
  require_fit(loaded, static_cast<int64_t>(inputs_), request_.config.max_tokens);
  if (!request_.config.ignore_end) end_ = end_of_document(*loaded.tokenizer);
}

void Continuation::take(std::span<const float> log_p) {
  const SamplingConfig& sampling = request_.config.sampling;
  const size_t made = ids_.size() - inputs_;
  const double uniform = uniform01(random_bits(sampling.seed, Stream::kSample, made));
  const std::span<const int32_t> before = std::span(ids_).subspan(1);
  const int32_t id = draw(candidates(log_p, before, sampling), uniform);
  ids_.push_back(id);
  MadeToken token{.token = {id, log_p[static_cast<size_t>(id)]}};
  if (request_.likeliest > 0) token.likeliest = likeliest(log_p, request_.likeliest);
  const bool at_end = id == end_;
  if (!at_end) token.text = stream_.push(id);
  request_.on_token(token);
  if (at_end) return end(Ended::kDocument);
  if (stream_.stopped()) return end(Ended::kStop);
  if (static_cast<int64_t>(made) + 1 >= request_.config.max_tokens) end(Ended::kLength);
}

void Continuation::end(Ended ended) {
  if (!open_) return;
  open_ = false;
  request_.on_end(ended, stream_.finish());
}

}  // namespace longshot
