#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace longshot {
namespace {

constexpr int64_t kMicroBatchTokens = 8192;  // more does not make the products faster, only the memory larger

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

int64_t sequences_per_step(const TrainConfig& config, int64_t length) {
  return std::max<int64_t>(config.batch_tokens / length, 1);
}

int64_t sequences_at_once(const TrainConfig& config, int64_t length) {
  const int64_t tokens = config.micro_batch_tokens > 0 ? config.micro_batch_tokens : kMicroBatchTokens;
  return std::clamp<int64_t>(tokens / length, 1, sequences_per_step(config, length));
}

}  // namespace

void TrainConfig::fields(Options& o) {
  o.group("training");
  o.add("steps", steps, "updates");
  o.add("batch-tokens", batch_tokens, "tokens per update");
  o.add("micro-batch-tokens", micro_batch_tokens, "tokens worked on at once, accumulated to a batch; 0: up to 8192");
  o.add("seed", seed, "of initial weights, data order and dropout");
  schedule.fields(o);
  o.add("eval-every", eval_every, "steps between validations; 0: at the end only");
  o.add("save-every", save_every, "steps between checkpoints; 0: at the end only");
  o.add("keep", keep, "checkpoints to keep, beside the best");
  o.add("log-every", log_every, "steps between records in metrics.jsonl");
  o.add("max-seconds", max_seconds, "end after this much training time; 0: no limit");
  o.add("recompute", recompute, "less memory: run each block again in the backward pass");
  optimizer.fields(o);
}

void TrainConfig::validate(int64_t length) const {
  require_usage(steps > 0, "--steps must be positive, not {}", steps);
  require_usage(batch_tokens >= length, "--batch-tokens ({}) must hold at least one sequence of --length {}",
                batch_tokens, length);
  require_usage(micro_batch_tokens == 0 || micro_batch_tokens >= length,
                "--micro-batch-tokens ({}) must hold at least one sequence of --length {}", micro_batch_tokens, length);
  require_usage(keep > 0, "--keep must be positive, not {}", keep);
  require_usage(log_every > 0, "--log-every must be positive, not {}", log_every);
  require_usage(save_every >= 0 && eval_every >= 0, "--save-every and --eval-every must not be negative");
  optimizer.validate();
  schedule.validate(steps);
}

Trainer::Trainer(Context& context, Inputs inputs, TrainConfig config)
    : context_(context),
      inputs_(inputs),
      config_(std::move(config)),
      sequences_(sequences_per_step(config_, inputs.model.config().length)),
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
    const Clock clock;
    train_step(0);
    s = clock.seconds();
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

TrainingPass::Config Trainer::pass_config(const TrainConfig& config, int64_t length) {
  return {.sequences = sequences_at_once(config, length), .length = length, .recompute = config.recompute};
}

int64_t Trainer::resume(int64_t step) {
  const std::vector<int64_t> steps = checkpoint_steps(inputs_.run);
  if (step > 0) {
    require(std::find(steps.begin(), steps.end(), step) != steps.end(), "{}: no checkpoint of step {}",
            inputs_.run.path().string(), step);
  } else if (steps.empty()) {
    return 0;
  } else {
    step = steps.back();
  }
  const fs::path dir = inputs_.run.checkpoint(step);
  CheckpointInfo info;
  try {
    info = read_checkpoint(dir);
    require(info.model.to_json() == inputs_.model.config().to_json(), "{}: it was trained with other model options: {}",
            dir.string(), info.model.to_json().dump());
    load_weights(dir, inputs_.model);
    require(info.training.has_value(), "{}: holds weights only, training cannot go on from it", dir.string());
    load_blocks(dir, inputs_.model, optimizer_.blocks());
    optimizer_.set_numbers(info.training->optimizer, dir.string());
  } catch (const Error& e) {
    const auto place = std::find(steps.begin(), steps.end(), step);
    if (place == steps.begin()) throw;
    fail("{} The checkpoint before it can be used: --resume-step {}", e.what(), *(place - 1));
  }
  start_ = saved_step_ = info.step;
  const Json& train = info.training->options;
  if (train.is_object()) {
    seconds_ = train.value("seconds", 0.0);
    peak_memory_ = train.value("peak_memory_bytes", size_t{0});
  }
  if (fs::exists(inputs_.run.metrics())) {
    std::string kept;
    for (const Json& record : read_records(inputs_.run.metrics())) {
      if (record.value("step", int64_t{0}) <= start_) kept += record.dump() + "\n";
    }
    write_atomically(inputs_.run.metrics(), kept);
  }
  return start_;
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

void Trainer::save(int64_t step) {
  if (saved_step_ == step) return;
  TrainConfig copy = config_;
  Options options;
  copy.fields(options);
  Json train;
  for (const Option& o : options.all()) train[o.name] = o.get();
  train["seconds"] = seconds_;
  peak_memory_ = std::max(peak_memory_, peak_memory_bytes());
  train["peak_memory_bytes"] = peak_memory_;
  save_checkpoint(inputs_.run.checkpoint(step),
                  {.model = inputs_.model,
                   .tokenizer = inputs_.tokenizer,
                   .step = step,
                   .blocks = optimizer_.blocks(),
                   .training = TrainingState{.optimizer = optimizer_.numbers(), .options = train}});
  saved_step_ = step;
  prune();
}

void Trainer::prune() {
  std::vector<int64_t> steps = checkpoint_steps(inputs_.run);
  int64_t best = -1;
  if (fs::exists(inputs_.run.best())) best = read_json(inputs_.run.best()).value("step", int64_t{-1});
  for (size_t i = 0; i + static_cast<size_t>(config_.keep) < steps.size(); ++i) {
    std::error_code ignored;  // an old checkpoint that stays does no harm
    if (steps[i] != best) fs::remove_all(inputs_.run.checkpoint(steps[i]), ignored);
  }
}

void Trainer::validate(int64_t step, const TrainerCallbacks& callbacks, Result& result) {
  result.valid_loss = callbacks.validate();
  append_record(inputs_.run.metrics(), {{"step", step}, {"seconds", seconds_}, {"valid_loss", result.valid_loss}});
  callbacks.on_note(fmt::format("step {}: validation loss {:.4f}, perplexity {:.2f}", step, result.valid_loss,
                                std::exp(result.valid_loss)));
  double best = HUGE_VAL;
  if (fs::exists(inputs_.run.best())) best = read_json(inputs_.run.best()).value("valid_loss", HUGE_VAL);
  if (result.valid_loss < best) {
    save(step);
    write_json(inputs_.run.best(), {{"step", step}, {"valid_loss", result.valid_loss}});
  }
}

Trainer::Result Trainer::train(const TrainerCallbacks& callbacks) {
  make_directories(inputs_.run.checkpoints());
  const double flops_per_token = training_flops_per_token(inputs_.model, inputs_.model.config().length);
  const auto per_step = static_cast<double>(tokens_per_step());
  const double before = seconds_;
  Clock clock;
  double away = 0;  // time in validation and saving, which is not training
  double reported = 0;
  int64_t reported_step = start_;
  Result result{.step = start_};
  for (int64_t step = start_; step < config_.steps && !result.finished; ++step) {
    result.loss = train_step(step);
    require(
        std::isfinite(result.loss) && std::isfinite(gradient_norm_),
        "step {}: the loss is {} and the gradient's norm {}. Use a lower --lr, a longer --warmup or a smaller --clip; "
        "checkpoints before this step are intact.",
        step, result.loss, gradient_norm_);
    const int64_t done = step + 1;
    const double elapsed = clock.seconds() - away;
    seconds_ = before + elapsed;
    result.step = done;
    const bool out_of_time = config_.max_seconds > 0 && seconds_ >= config_.max_seconds;
    const bool last = done == config_.steps || out_of_time;
    if (done % config_.log_every == 0 || last || done == 1) {
      const double rate = static_cast<double>(done - reported_step) * per_step / std::max(elapsed - reported, 1e-9);
      const StepReport report{.step = done,
                              .steps = config_.steps,
                              .loss = result.loss,
                              .lr = learning_rate(config_.schedule, config_.steps, step),
                              .gradient_norm = gradient_norm_,
                              .tokens_per_second = rate,
                              .seconds = seconds_,
                              .seconds_left = static_cast<double>(config_.steps - done) * per_step / rate,
                              .flops_per_second = rate * flops_per_token};
      append_record(inputs_.run.metrics(), {{"step", done},
                                            {"tokens", static_cast<int64_t>(static_cast<double>(done) * per_step)},
                                            {"seconds", seconds_},
                                            {"loss", report.loss},
                                            {"lr", report.lr},
                                            {"gradient_norm", report.gradient_norm},
                                            {"tokens_per_second", rate}});
      callbacks.on_step(report);
      reported = elapsed;
      reported_step = done;
    }
    const double pause = clock.seconds();
    const bool stop = !last && callbacks.should_stop();
    if (callbacks.validate && (last || (config_.eval_every > 0 && done % config_.eval_every == 0))) {
      validate(done, callbacks, result);
    }
    if (last || stop || (config_.save_every > 0 && done % config_.save_every == 0)) save(done);
    away += clock.seconds() - pause;
    if (stop) break;
    result.finished = last;
  }
  if (start_ >= config_.steps) result.finished = true;
  result.seconds = seconds_;
  result.peak_memory_bytes = peak_memory_;
  result.tokens_per_second = static_cast<double>(result.step) * per_step / std::max(seconds_, 1e-9);
  return result;
}

}  // namespace longshot
