#include "generate/unbounded.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "generate/scheduler.h"
#include "generate/text_stream.h"

namespace longshot {
namespace {

constexpr int64_t kPiece = 1024;                        // tokens that are scored at once
constexpr size_t kRead = 1 << 16, kMostText = 1 << 26;  // bytes; of text in which no place was found to cut it

bool has_bound(const LoadedModel& loaded) {
  return loaded.model->attention_options(0).bias.kind == DistanceBias::Kind::kLinear;
}

// For calls of at most `tokens`.
Inference::Config cache_of(const LoadedModel& loaded, const UnboundedConfig& config, int64_t tokens) {
  config.validate(loaded);
  Inference::Config cache{.sequences = 1, .tokens = tokens, .capacity = Inference::kEndless};
  if (has_bound(loaded)) {
    cache.forget = config.strict ? Inference::Forget::kByWeights : Inference::Forget::kBySeen;
  } else {
    cache.window = config.window > 0 ? config.window : loaded.info.model.length;
    cache.sinks = std::min(config.sinks, cache.window);
  }
  return cache;
}

// A model at work on one stream.
class StreamingModel {
 public:
  StreamingModel(Context& context, LoadedModel& loaded, const Inference::Config& cache, const Watch& watch)
      : inference_(context, *loaded.model, cache, watch), start_(seconds_now()) {
    report_.certified = has_bound(loaded);
    report_.window = cache.window, report_.sinks = cache.sinks;
  }

  Inference& inference() { return inference_; }
  double seconds() const { return seconds_now() - start_; }
  UnboundedReport report(int64_t tokens) {
    report_.forgotten = inference_.forgotten();
    report_.tokens = tokens;
    report_.seconds = seconds();
    return report_;
  }

 private:
  Inference inference_;
  UnboundedReport report_;
  double start_;
};

// A text as ids, a piece at a time.
class TokenReader {
 public:
  TokenReader(const LoadedModel& loaded, const TextReader& read)
      : tokenizer_(*loaded.tokenizer),
        vocab_(loaded.info.model.vocab),
        encoder_(tokenizer_.make_encoder()),
        read_(read) {}

  // The next ids, at most `most`; none at the end.
  std::span<const int32_t> next(int64_t most) {
    while (static_cast<int64_t>(ids_.size() - used_) < most && !at_end_) read_on();
    const size_t count = std::min(ids_.size() - used_, static_cast<size_t>(most));
    used_ += count;
    return std::span(ids_).subspan(used_ - count, count);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void read_on() {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<int64_t>(used_));
    used_ = 0;
    const size_t before = text_.size();
    text_.resize(before + kRead);
    const size_t got = read_({text_.data() + before, kRead});
    text_.resize(before + got);
    bytes_ += static_cast<int64_t>(got);
    at_end_ = got < kRead;
    const size_t cut = at_end_ ? text_.size() : tokenizer_.cut(text_);
    require(at_end_ || text_.size() - cut <= kMostText,
            "{} MB of text without a place where tokenizer '{}' can cut it: is it text?", kMostText >> 20,
            tokenizer_.name());
    encoder_->append(std::string_view(text_).substr(0, cut), ids_);
    text_.erase(0, cut);
    for (const int32_t id : ids_) require(id >= 0 && id < vocab_, "id {} is outside the vocabulary of {}", id, vocab_);
  }

  const Tokenizer& tokenizer_;
  int64_t vocab_;
  std::unique_ptr<Encoder> encoder_;
  const TextReader& read_;
  std::string text_;  // not encoded yet
  std::vector<int32_t> ids_;
  size_t used_ = 0;  // of ids_
  int64_t bytes_ = 0;
  bool at_end_ = false;
};

// Mean losses by octaves of context, [0, 1), [1, 2), [2, 4), ..
class LossByContext {
 public:
  void add(int64_t context, double loss) {
    const auto octave = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(context)));
    if (sums_.size() <= octave) sums_.resize(octave + 1), counts_.resize(octave + 1);
    sums_[octave] += loss;
    ++counts_[octave];
  }
  std::vector<PositionLoss> octaves() const {
    std::vector<PositionLoss> all;
    for (size_t i = 0; i < sums_.size(); ++i) {
      all.push_back({.from = i == 0 ? 0 : int64_t{1} << (i - 1),
                     .to = int64_t{1} << i,
                     .tokens = counts_[i],
                     .loss = sums_[i] / static_cast<double>(counts_[i])});
    }
    return all;
  }

 private:
  std::vector<double> sums_;
  std::vector<int64_t> counts_;
};

}  // namespace

void UnboundedConfig::fields(Options& o) {
  o.group("streams without end");
  o.add("unbounded", on,
        "memory and time per token stay the same however long the text: keys that cannot matter any more are dropped, "
        "or, "
        "for methods without a bound on them, all but a window");
  o.add("strict", strict, "drop keys by a bound from the weights, which holds for every text, not by the queries seen");
  o.add("window", window, "of methods without a bound: the last tokens, which are seen; 0: the training length");
  o.add("sinks", sinks, "and the first so many");
}

void UnboundedConfig::validate(const LoadedModel& loaded) const {
  constexpr int64_t kMostWindow = 1 << 24;
  const std::string& method = loaded.info.model.position;
  const int64_t reach = loaded.model->position().max_length();
  require_usage(reach == Inference::kEndless, "--unbounded: position method '{}' is not defined beyond {}", method,
                reach);
  require_usage(window >= 0 && window <= kMostWindow, "--window: {} is not between 0 and {}", window, kMostWindow);
  require_usage(sinks >= 0 && sinks <= kKeyTile, "--sinks: {} is not between 0 and {}", sinks, kKeyTile);
  require_usage(!has_bound(loaded) || window == 0,
                "--window is for methods without a bound on far keys; '{}' has one and drops what cannot matter",
                method);
  require_usage(has_bound(loaded) || !strict,
                "--strict is for methods with a bound on far keys; '{}' has none and sees a window", method);
}

std::string UnboundedConfig::announcement(const LoadedModel& loaded) const {
  const Inference::Config cache = cache_of(loaded, *this, 1);
  if (has_bound(loaded))
    return "unbounded: keys that cannot matter any more are dropped, what that leaves out is certified";
  return fmt::format("unbounded, an approximation: a token sees the last {} tokens and the first {}, nothing between",
                     cache.window, cache.sinks);
}

std::string UnboundedReport::text() const {
  if (!certified) {
    return fmt::format("a window of {} tokens and the first {}: an approximation, what lies between was out of sight",
                       window, sinks);
  }
  const std::string kept = fmt::format("{} to {} keys a head, {:.1f} MB", forgotten.least_kept, forgotten.most_kept,
                                       static_cast<double>(forgotten.bytes) / 1e6);
  const std::string grown = forgotten.grown > 0 ? fmt::format(", rings grown {} times", forgotten.grown) : "";
  if (forgotten.dropped == 0) return fmt::format("no key was dropped; {}{}", kept, grown);
  return fmt::format("at most {:.1e} of any token's attention was left out; {}{}", forgotten.left_out, kept, grown);
}

Json UnboundedReport::to_json() const {
  if (!certified) return {{"kind", "window"}, {"approximation", true}, {"window", window}, {"sinks", sinks}};
  return {{"kind", "certified"},
          {"approximation", false},
          {"left_out_at_most", forgotten.left_out},
          {"fewest_keys_of_a_head", forgotten.least_kept},
          {"most_keys_of_a_head", forgotten.most_kept},
          {"most_keys_dropped", forgotten.dropped},
          {"rings_grown", forgotten.grown},
          {"bytes", forgotten.bytes}};
}

double ScoredStream::bits_per_byte() const {
  return loss * static_cast<double>(unbounded.tokens) / static_cast<double>(bytes) / std::log(2.0);
}

ScoredStream score_unbounded(Context& context, LoadedModel& loaded, const TextReader& read,
                             const UnboundedConfig& config, const ScoreStreamCallbacks& callbacks) {
  const Tokenizer& tokenizer = loaded.required_tokenizer();
  StreamingModel model(context, loaded, cache_of(loaded, config, kPiece), callbacks.preparing);
  TokenReader reader(loaded, read);
  TextStream texts(tokenizer, {}, {});
  LossByContext by_context;
  ScoredStream scored;
  double sum = 0, told = 0;
  int64_t tokens = 0;
  int32_t before = tokenizer.start_id();
  std::vector<int32_t> inputs;
  std::vector<float> losses;
  for (auto ids = reader.next(kPiece); !ids.empty(); ids = reader.next(kPiece)) {
    if (callbacks.should_stop()) {
      scored.finished = false;
      break;
    }
    inputs.assign(1, before);
    inputs.insert(inputs.end(), ids.begin(), ids.end() - 1);
    before = ids.back();
    losses.resize(ids.size());
    const auto count = static_cast<int64_t>(ids.size());
    model.inference().score({.inputs = inputs, .length = count, .first_key = {}}, ids, 0, losses);
    for (size_t i = 0; i < ids.size(); ++i) {
      callbacks.on_token(tokens, {ids[i], texts.push(ids[i]), losses[i]});
      by_context.add(tokens++, losses[i]);
      sum += losses[i];
    }
    if (model.seconds() - told < 0.2) continue;
    told = model.seconds();
    callbacks.on_progress(tokens, sum / static_cast<double>(tokens));
  }
  require(tokens > 0 || !scored.finished, "there is no token in the text to score");
  scored.unbounded = model.report(tokens);
  scored.bytes = reader.bytes();
  scored.loss = sum / static_cast<double>(tokens);
  scored.per_position = by_context.octaves();
  return scored;
}

GeneratedStream generate_unbounded(Context& context, LoadedModel& loaded, TextRequest request,
                                   const UnboundedConfig& config, const Watch& preparing) {
  require_usage(request.config.samples == 1, "--unbounded makes one sample, not {}", request.config.samples);
  require_usage(request.config.context == 0, "--context and --unbounded: one of them");
  GeneratedStream made;
  request.on_end = [&made, told = std::move(request.on_end)](Ended ended, const std::string& text) {
    made.ended = ended;
    told(ended, text);
  };
  Continuation text(loaded, std::move(request));
  StreamingModel model(context, loaded, cache_of(loaded, config, kPromptPiece), preparing);
  std::vector<float> log_p(static_cast<size_t>(loaded.info.model.vocab));
  const auto run = [&](std::span<const int32_t> ids) {
    if (text.request().should_stop()) return text.end(Ended::kAsked);
    const auto count = static_cast<int64_t>(ids.size());
    model.inference().log_probabilities({.inputs = ids, .length = count, .first_key = {}}, count - 1,
                                        {log_p.data(), 1, static_cast<int64_t>(log_p.size())});
  };
  if (text.request().config.max_tokens == 0) text.end(Ended::kLength);
  const size_t prompt = text.inputs().size();
  for (size_t first = 0; first < prompt && text.is_open(); first += kPromptPiece)
    run(text.inputs().subspan(first, std::min<size_t>(kPromptPiece, prompt - first)));
  int64_t tokens = 0;
  while (text.is_open()) {
    text.take(log_p);
    if (++tokens == 1) made.first_seconds = model.seconds();
    const int32_t last = text.last();
    if (text.is_open()) run({&last, 1});
  }
  made.unbounded = model.report(tokens);
  return made;
}

}  // namespace longshot
