#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "kernels/peak.h"

namespace longshot {
namespace {

constexpr int64_t kMicroBatchTokens = 8192;  // more does not make the products faster, only the memory larger

int64_t sequences_at_once(const TrainConfig& config, int64_t length) {
  const int64_t tokens = config.micro_batch_tokens > 0 ? config.micro_batch_tokens : kMicroBatchTokens;
  return std::clamp<int64_t>(tokens / length, 1, config.sequences(length));
}

}  // namespace

Trainer::Trainer(Context& context, Inputs inputs, TrainConfig config)
    : context_(context),
      inputs_(inputs),
      config_(std::move(config)),
      sequences_(config_.sequences(inputs.model.config().length)),
      micro_sequences_(sequences_at_once(config_, inputs.model.config().length)),
      batches_(inputs.tokens, {.length = inputs.model.config().length,
                               .sequences = sequences_,
                               .seed = config_.seed,
                               .document_mask = inputs.model.config().document_mask}),
      pass_(context, inputs.model, pass_config(config_, inputs.model.config().length)),
      optimizer_(config_.optimizer, inputs.model.parameters()) {}

double Trainer::seconds_per_step() {
  std::array<double, 5> seconds;
  train_step(0);
  for (double& s : seconds) {
    const double start = seconds_now();
    train_step(0);
    s = seconds_now() - start;
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

TrainingPass::Config Trainer::pass_config(const TrainConfig& config, int64_t length) {
  return {.sequences = sequences_at_once(config, length), .length = length, .recompute = config.recompute};
}

void Trainer::restore(const fs::path& checkpoint, const CheckpointInfo& info) {
  const TrainingState& training = training_of(info, checkpoint);
  load_weights(checkpoint, inputs_.model);
  load_blocks(checkpoint, inputs_.model, optimizer_.blocks());
  optimizer_.set_numbers(training.optimizer, checkpoint.string());
  inputs_.from = info.from;
  step_ = saved_step_ = info.step;
  seconds_ = training.seconds;
  peak_memory_ = static_cast<size_t>(training.peak_memory_bytes);
}

// Gradients of the mean loss over all targets of the step, accumulated over micro-batches; then one update.
double Trainer::train_step(int64_t step) {
  context_.update_share();
  const int64_t length = inputs_.model.config().length;
  batches_.fill(step, batch_);
  const auto targets = static_cast<double>(batch_.target_count());
  const int64_t passes = (sequences_ + micro_sequences_ - 1) / micro_sequences_;
  const auto padded = static_cast<size_t>(passes * micro_sequences_ * length);
  batch_.inputs.resize(padded, 0);
  batch_.targets.resize(padded, kNoTarget);
  batch_.doc_start.resize(padded, 0);
  const auto size = static_cast<size_t>(micro_sequences_ * length);
  double sum = 0;
  for (int64_t m = 0; m < passes; ++m) {
    const auto part = [&](const std::vector<int32_t>& v) {
      return std::span(v).subspan(static_cast<size_t>(m) * size, size);
    };
    TrainingBatch micro{.sequences = micro_sequences_,
                        .length = length,
                        .inputs = part(batch_.inputs),
                        .targets = part(batch_.targets),
                        .first_key = {}};
    if (inputs_.model.config().document_mask) micro.first_key = part(batch_.doc_start);
    const uint64_t key =
        random_bits(config_.seed, Stream::kDropout, static_cast<uint64_t>(step), static_cast<uint64_t>(m));
    sum += pass_.run(micro, static_cast<float>(1 / targets), key);
  }
  gradient_norm_ = optimizer_.step(context_, learning_rate(config_.schedule, config_.steps, step));
  return sum / targets;
}

// Time in training; validation and saving do not count.
class Trainer::Clock {
 public:
  explicit Clock(double before, int64_t step) : before_(before), reported_(before), reported_step_(step) {}

  double seconds() const { return before_ + seconds_now() - start_ - away_; }
  void pause() { paused_ = seconds_now(); }
  void go_on() { away_ += seconds_now() - paused_; }

  // Updates per second since the last call.
  double rate(int64_t step) {
    const double s = seconds();
    const auto updates = static_cast<double>(step - std::exchange(reported_step_, step));
    return updates / std::max(s - std::exchange(reported_, s), 1e-9);
  }

 private:
  double before_, reported_;
  int64_t reported_step_;
  double start_ = seconds_now(), away_ = 0, paused_ = 0;
};

bool Trainer::at_end() const {
  return step_ >= config_.steps || (config_.max_seconds > 0 && seconds_ >= config_.max_seconds);
}

void Trainer::advance() {
  loss_ = train_step(step_);
  require(
      std::isfinite(loss_) && std::isfinite(gradient_norm_),
      "step {}: the loss is {} and the gradient's norm {}. Use a lower --lr, a longer --warmup or a smaller --clip; "
      "checkpoints before this step are intact.",
      step_, loss_, gradient_norm_);
  ++step_;
}

StepReport Trainer::report(Clock& clock) const {
  const double rate = clock.rate(step_);
  const auto per_step = static_cast<double>(tokens_per_step());
  return {.metrics = {.step = step_,
                      .tokens = step_ * tokens_per_step(),
                      .seconds = seconds_,
                      .loss = loss_,
                      .lr = learning_rate(config_.schedule, config_.steps, step_ - 1),
                      .gradient_norm = gradient_norm_,
                      .tokens_per_second = rate * per_step},
          .steps = config_.steps,
          .seconds_left = static_cast<double>(config_.steps - step_) / rate,
          .flops_per_second = rate * per_step * training_flops_per_token(inputs_.model, inputs_.model.config().length)};
}

void Trainer::save(RunWriter& run) {
  if (saved_step_ == step_) return;
  peak_memory_ = std::max(peak_memory_, peak_memory_bytes());
  run.save({.model = inputs_.model,
            .tokenizer = inputs_.tokenizer,
            .step = step_,
            .blocks = optimizer_.blocks(),
            .training = TrainingState{.options = option_values(config_),
                                      .optimizer = optimizer_.numbers(),
                                      .data_hash = data_hash_,
                                      .seconds = seconds_,
                                      .peak_memory_bytes = static_cast<int64_t>(peak_memory_),
                                      .arithmetic = arithmetic(context_)},
            .from = inputs_.from},
           config_.keep);
  saved_step_ = step_;
}

// False when it was asked to stop.
bool Trainer::validate(RunWriter& run, const TrainerCallbacks& callbacks) {
  const int64_t length = inputs_.model.config().length;
  const std::optional<double> loss = callbacks.validate(length);
  if (!loss) return false;
  MetricsRecord record{.step = step_, .seconds = seconds_, .valid_loss = *loss};
  std::string note = fmt::format("step {}: validation loss {:.4f}, perplexity {:.2f}", step_, *loss, std::exp(*loss));
  for (const int64_t other : config_.eval_lengths) {
    if (other == length) continue;
    const std::optional<double> there = callbacks.validate(other);
    if (!there) return false;
    note += fmt::format("; {:.2f} at {}", std::exp(*there), other);
    if (std::isfinite(*there)) record.valid_losses.push_back({other, *there});
  }
  run.validated(record);
  callbacks.on_note(note);
  return true;
}

TrainResult Trainer::train(RunWriter& run, const TrainerCallbacks& callbacks) {
  const int64_t first = step_;
  data_hash_ = hex(inputs_.tokens.data_hash());
  const auto validation_due = [&] { return callbacks.validate && (at_end() || every(config_.eval_every)); };
  bool stopped = false;
  if (first > 0 && validation_due()) {  // a validation that was broken off, or not asked for then
    if (!run.valid_loss_at(first)) stopped = !validate(run, callbacks);
  }
  Clock clock(seconds_, step_);
  double saved = seconds_now();
  while (!stopped && !at_end()) {
    advance();
    seconds_ = clock.seconds();
    if (every(config_.log_every) || at_end() || step_ == 1) {
      const StepReport r = report(clock);
      run.log(r.metrics);
      callbacks.on_step(r);
    }
    clock.pause();
    stopped = !at_end() && callbacks.should_stop();
    const bool out_of_patience = config_.save_minutes > 0 && seconds_now() - saved >= 60 * config_.save_minutes;
    // Saved first: nothing that happens during validation can lose what was trained.
    if (stopped || validation_due() || at_end() || every(config_.save_every) || out_of_patience) {
      save(run);
      saved = seconds_now();
    }
    if (!stopped && validation_due()) stopped = !validate(run, callbacks);
    clock.go_on();
  }
  return result(run, first, stopped);
}

TrainResult Trainer::result(const RunWriter& run, int64_t first, bool stopped) const {
  TrainResult result{.step = step_,
                     .finished = !stopped && at_end(),
                     .updates = step_ - first,
                     .loss = {},
                     .valid_loss = {},
                     .seconds = seconds_,
                     .tokens_per_second = static_cast<double>(step_ * tokens_per_step()) / std::max(seconds_, 1e-9),
                     .peak_memory_bytes = peak_memory_};
  for (const MetricsRecord& r : run.records()) {
    if (r.loss) result.loss = r.loss;
    if (r.valid_loss) result.valid_loss = r.valid_loss;
  }
  if (step_ > first) result.loss = loss_;
  return result;
}

}  // namespace longshot
