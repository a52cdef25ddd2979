#include "evaluate/evaluation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/context.h"
#include "base/error.h"
#include "evaluate/summary.h"
#include "kernels/peak.h"
#include "run/checkpoint.h"

namespace longshot {
namespace {

// ", int8 weights", where they are not the floats of training.
std::string stored_text(const Transformer& model) {
  const WeightType type = model.parameters().stored().value_or(WeightType::kF32);
  return type == WeightType::kF32 ? "" : fmt::format(", {} weights", name_of(kWeightTypes, type));
}

// Tokens that every length cuts into whole windows, as many as there are. Where lengths share no such number, the longest
// has whole windows, and the last one of another length is shorter.
int64_t tokens_in_common(const std::vector<int64_t>& lengths, int64_t available) {
  const int64_t longest = lengths.back();
  require_usage(available >= longest,
                "--score same needs at least one whole window of {} tokens, but there are {}; use --score all", longest,
                available);
  int64_t common = longest;
  for (const int64_t length : lengths) {
    const int64_t factor = length / std::gcd(common, length);
    if (factor > available / common) return available / longest * longest;
    common *= factor;
  }
  return available / common * common;
}

int64_t stride_of(const EvaluationConfig& config, WindowMode mode, int64_t length) {
  if (mode == WindowMode::kNonoverlapping) return length;
  if (config.stride == 0) return std::max<int64_t>(length / 4, 1);
  return std::min(config.stride, length);
}

void check(const EvaluationConfig& config) {
  require_usage(!config.modes.empty(),
                "there must be a way in which windows follow each other: nonoverlapping, sliding");
  for (const int64_t length : config.lengths)
    require_usage(length > 0 && length <= kLongestLength, "a window of length {}: it must be positive and at most {}",
                  length, kLongestLength);
  require_usage(config.stride >= 0, "--stride must not be negative, but is {}", config.stride);
  require_usage(
      std::ranges::count(config.modes, WindowMode::kSliding) > 0 || (config.stride == 0 && config.sliding_tokens == 0),
      "a stride is for sliding windows, but these are nonoverlapping: ask for sliding ones too");
  require_usage(config.max_tokens >= 0 && config.sliding_tokens >= 0,
                "a number of tokens to score must not be negative");
  require_usage(config.batch_tokens > 0 && config.batch_tokens <= kLongestLength,
                "--batch-tokens must be positive and at most {}, not {}", kLongestLength, config.batch_tokens);
}

std::vector<int64_t> lengths_of(const EvaluationConfig& config, int64_t train_length) {
  std::vector<int64_t> lengths = config.lengths.empty() ? length_ladder(train_length) : config.lengths;
  std::ranges::sort(lengths);
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

// The decomposition compares with windows of the training length, where nobody asked for them.
bool lacks_train_length(const EvaluationPlan& plan, int64_t tokens) {
  bool longer = false;
  for (const Evaluation& e : plan.evaluations) {
    if (e.mode != WindowMode::kNonoverlapping) continue;
    if (e.windows.window == plan.train_length) return false;
    longer |= e.windows.window > plan.train_length;
  }
  return longer && plan.scored == Scored::kSame && tokens % plan.train_length == 0;
}

OptionalNumber finite(double v) { return std::isfinite(v) ? OptionalNumber(v) : std::nullopt; }

EvalRecord record_of(const Evaluation& e, const EvaluationPlan& plan, const EvalSummary& s) {
  EvalRecord record = question_of(e, plan);
  record.tokens = s.tokens;
  record.loss = finite(s.loss);
  record.standard_error = s.standard_error;
  record.perplexity = finite(std::exp(s.loss));
  if (!record.perplexity) record.loss.reset();
  if (s.word_loss) record.word_perplexity = finite(std::exp(*s.word_loss));
  if (s.byte_loss) record.bits_per_byte = finite(*s.byte_loss / std::log(2.0));
  return record;
}

// What non-overlapping windows of the same tokens say beyond their means.
void analyse(const EvaluationPlan& plan, Evaluated& evaluated) {
  std::map<int64_t, const std::vector<float>*> by_length;
  for (const EvaluatedLosses& e : evaluated.losses) {
    if (e.evaluation.mode == WindowMode::kNonoverlapping) by_length[e.evaluation.windows.window] = &e.losses;
  }
  if (by_length.empty() || plan.scored != Scored::kSame) return;
  const auto& [longest, at_longest] = *by_length.rbegin();
  evaluated.per_position = loss_by_position(*at_longest, longest);
  const auto as_trained = by_length.find(plan.train_length);
  if (as_trained == by_length.end()) return;
  for (auto at = std::next(as_trained); at != by_length.end(); ++at) {
    const Decomposition d = split_gain({*at->second, at->first}, {*as_trained->second, as_trained->first});
    if (std::isfinite(d.total) && std::isfinite(d.curse_relief)) evaluated.decomposition.push_back(d);
  }
}

}  // namespace

EvalRecord question_of(const Evaluation& e, const EvaluationPlan& plan) {
  return {.length = e.windows.window,
          .mode = e.mode,
          .stride = e.windows.stride,
          .split = plan.split,
          .score = plan.scored,
          .tokens = e.tokens,
          .scaling = plan.scaling};
}

ModelReach reach_of(Transformer& model) {
  const std::string scaling = model.config().position_options.running_text();
  return {.train_length = model.config().length,
          .max_length = model.position().max_length(),
          .scaling = scaling.empty() ? std::nullopt : std::optional(scaling)};
}

std::vector<int64_t> length_ladder(int64_t train_length) {
  std::vector<int64_t> lengths;
  constexpr int64_t kMost =
      std::numeric_limits<int64_t>::max();  // a length beyond reason is refused by its name, later
  for (int64_t factor = 1; factor <= 16 && train_length <= kMost / factor; factor *= 2) {
    lengths.push_back(factor * train_length);
  }
  return lengths;
}

EvaluationPlan plan_evaluations(const EvaluationConfig& config, ModelReach reach, const TokenFile& stream) {
  check(config);
  const std::vector<int64_t> lengths = lengths_of(config, reach.train_length);
  EvaluationPlan plan{.split = config.split,
                      .scored = config.scored,
                      .batch_tokens = config.batch_tokens,
                      .train_length = reach.train_length,
                      .evaluations = {},
                      .undefined = {},
                      .scaling = reach.scaling};
  const int64_t available = config.max_tokens > 0 ? std::min(config.max_tokens, stream.size()) : stream.size();
  require(available > 0, "{}: there are no tokens to score", stream.path().string());
  const int64_t tokens = plan.scored == Scored::kSame ? tokens_in_common(lengths, available) : available;
  for (const int64_t length : lengths) {
    if (length > reach.max_length) {
      plan.undefined.push_back(length);
      continue;
    }
    for (const WindowMode mode : config.modes) {
      const bool fewer = mode == WindowMode::kSliding && config.sliding_tokens > 0;
      plan.evaluations.push_back({.windows = {length, stride_of(config, mode, length)},
                                  .mode = mode,
                                  .tokens = fewer ? std::min(config.sliding_tokens, tokens) : tokens});
    }
  }
  if (lacks_train_length(plan, tokens)) {
    plan.evaluations.push_back(
        {.windows = {reach.train_length, reach.train_length}, .tokens = tokens, .asked_for = false});
  }
  return plan;
}

Evaluated evaluate(Context& context, const Subject& subject, const TokenFile& stream, const EvaluationPlan& plan,
                   const EvaluationCallbacks& callbacks) {
  require(reach_of(subject.model).scaling == plan.scaling,
          "the evaluation was planned with '{}', the model runs with '{}'", plan.scaling.value_or("no scaling"),
          reach_of(subject.model).scaling.value_or("no scaling"));
  Evaluated evaluated;
  for (const Evaluation& e : plan.evaluations) {
    ScoreOptions options{.batch_tokens = plan.batch_tokens,
                         .document_mask = subject.model.config().document_mask,
                         .world = plan.world,
                         .ranks_per_window = plan.ranks_per_window};
    options.should_stop = callbacks.should_stop;
    options.on_progress = [&](int64_t scored, double seconds) {
      callbacks.on_progress({e, scored, static_cast<double>(scored) / std::max(seconds, 1e-9)});
    };
    reset_peak_memory();
    Scores scores = score_stream(context, subject.model, {stream, e.windows, e.tokens}, options);
    if (!scores.finished) {
      evaluated.finished = false;
      return evaluated;
    }
    if (plan.world && !plan.world->is_root()) continue;
    if (e.asked_for) {
      EvalRecord record = record_of(e, plan, summarize(stream, scores.losses));
      record.blocks = block_means(scores.losses);
      record.data = hex(stream.data_hash());
      record.weights = subject.weights;
      record.step = subject.step;
      record.precision = context.precision();
      record.arithmetic = arithmetic(context) + stored_text(subject.model);
      record.tokens_per_second = static_cast<double>(e.tokens) / std::max(scores.seconds, 1e-9);
      record.peak_memory_bytes = static_cast<int64_t>(peak_memory_bytes());
      callbacks.on_done({record, scores.tiles, scores.halo});
      evaluated.records.push_back(std::move(record));
    }
    evaluated.losses.push_back({e, std::move(scores.losses)});
  }
  if (!plan.world || plan.world->is_root()) analyse(plan, evaluated);
  std::erase_if(evaluated.losses, [](const EvaluatedLosses& e) { return !e.evaluation.asked_for; });
  return evaluated;
}

}  // namespace longshot
