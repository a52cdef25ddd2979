#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "kernels/peak.h"
#include "kernels/update.h"

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
      rank_(inputs.world ? inputs.world->rank() : 0),
      ranks_(inputs.world ? inputs.world->size() : 1),
      plan_(plan(config_, inputs.model.config().length, rank_, ranks_)),
      batches_(inputs.tokens, {.length = inputs.model.config().length,
                               .sequences = sequences_,
                               .seed = config_.seed,
                               .document_mask = inputs.model.config().document_mask}),
      pass_(context, inputs.model, pass_config(plan_, config_, inputs.model.config().length)),
      shards_(inputs.model.parameters(), ranks_),
      optimizer_(config_.optimizer, inputs.model.parameters(), shards_, rank_) {
  Parameters& parameters = inputs_.model.parameters();
  sums_.push_back(parameters.grads());
  memory_ = Workspace([&](Layout& at) {
    sums_.resize(1);
    for (int i = 1; i < plan_.sums; ++i) sums_.push_back(at.array<float>(parameters.gradient_floats()));
  });
  if (is_alone()) return;
  exchange_.emplace(context, *inputs_.world, parameters, shards_);
  moments_.emplace(*inputs_.world, parameters, shards_, optimizer_);
}

BatchPlan Trainer::plan(const TrainConfig& config, int64_t length, int rank, int ranks) {
  return BatchPlan({.sequences = config.sequences(length),
                    .groups = config.batch_groups,
                    .together = sequences_at_once(config, length),
                    .rank = rank,
                    .ranks = ranks});
}

SharedGradients Trainer::shared_gradients(const TrainConfig& config, int64_t length, const Communicator* world) {
  const BatchPlan own = plan(config, length, world ? world->rank() : 0, world ? world->size() : 1);
  return own.shared_apart ? SharedGradients::kApart : SharedGradients::kTogether;
}

double Trainer::seconds_per_step() {
  std::array<double, 5> seconds;
  train_step(0);
  for (double& s : seconds) {
    const double start = seconds_now();
    train_step(0);
    s = seconds_now() - start;
  }
  finish_step();
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

TrainingPass::Config Trainer::pass_config(const BatchPlan& plan, const TrainConfig& config, int64_t length) {
  TrainingPass::Config pass{.sequences = plan.longest, .length = length, .recompute = config.recompute};
  for (const GroupPiece& p : plan.passes) pass.groups.push_back(p.groups);
  return pass;
}

void Trainer::restore(const fs::path& checkpoint, const CheckpointInfo& info, const Watch& watch) {
  const TrainingState& training = training_of(info, checkpoint);
  load_weights(checkpoint, inputs_.model, watch);
  load_blocks(checkpoint, inputs_.model, optimizer_.blocks());
  optimizer_.set_numbers(training.optimizer, checkpoint.string());
  inputs_.from = info.from;
  saved_step_ = step_ = info.step;
  seconds_ = training.seconds;
  peak_memory_ = static_cast<size_t>(training.peak_memory_bytes);
}

void Trainer::begin_together(const Start& start) {
  Communicator& world = *inputs_.world;
  std::array<double, 3> numbers{};
  std::string optimizer;
  world.on_root([&] {
    if (!start.info) return;
    const TrainingState& training = training_of(*start.info, start.checkpoint);
    load_weights(start.checkpoint, inputs_.model, start.watch);
    inputs_.from = start.info->from;
    numbers = {static_cast<double>(start.info->step), training.seconds,
               static_cast<double>(training.peak_memory_bytes)};
    optimizer = Json(training.optimizer).dump();
  });
  world.broadcast(std::as_writable_bytes(std::span(numbers)));
  optimizer = world.broadcast(std::move(optimizer));
  world.broadcast(std::as_writable_bytes(inputs_.model.parameters().values()));
  step_ = static_cast<int64_t>(numbers[0]);
  if (step_ == 0) return;
  saved_step_ = step_;
  seconds_ = numbers[1];
  peak_memory_ = static_cast<size_t>(numbers[2]);
  optimizer_.set_numbers(Json::parse(optimizer).get<std::map<std::string, double>>(), world.name(0));
  moments_->scatter(start.checkpoint, inputs_.model);
}

// Gradients of the mean loss over all targets of the step, accumulated over passes and ranks; then one update.
double Trainer::train_step(int64_t step) {
  context_.update_share();
  batches_.fill(step, batch_);
  const double of_rank = run_passes(step);
  Optimizer::Complete complete;
  if (exchange_) {
    exchange_->finish_gradients();
    exchange_->finish_values();
    complete = [this](std::span<double> units) { exchange_->share_units(units); };
  }
  const double sum = sum_of_ranks(of_rank);
  Parameters& parameters = inputs_.model.parameters();
  for (const FloatRange& r : optimizer_.own()) parameters.join_gradients(context_, r.begin, r.end);
  gradient_norm_ = optimizer_.step(context_, learning_rate(config_.schedule, config_.steps, step), complete);
  if (exchange_) exchange_->begin_values();
  return sum / static_cast<double>(batch_.target_count());
}

// The last step's parameters may still be on their way.
void Trainer::finish_step() {
  if (exchange_) exchange_->finish_values();
}

TrainingBatch Trainer::batch_of(const GroupPiece& pass) {
  const int64_t length = inputs_.model.config().length, first = plan_.first + pass.first;
  const auto of = [&](const std::vector<int32_t>& v) {
    return part<const int32_t>(v, first * length, pass.count * length);
  };
  return {.sequences = pass.count,
          .length = length,
          .inputs = of(batch_.inputs),
          .targets = of(batch_.targets),
          .first_key = inputs_.model.config().document_mask ? of(batch_.doc_start) : std::span<const int32_t>{},
          .first_sequence = first,
          .together = plan_.least,
          .groups = pass.groups};
}

// The sum of the losses of this rank's sequences; their gradients' sum is in the first block.
double Trainer::run_passes(int64_t step) {
  Parameters& parameters = inputs_.model.parameters();
  const auto scale = static_cast<float>(1 / static_cast<double>(batch_.target_count()));
  const uint64_t key = random_bits(config_.seed, Stream::kDropout, static_cast<uint64_t>(step));
  std::array<double, kMostDepth> losses{};
  int top = 0;
  for (const GroupPiece& pass : plan_.passes) {
    const bool last = &pass == &plan_.passes.back();
    if (!pass.goes_on) losses[static_cast<size_t>(top++)] = 0;
    parameters.sum_gradients_in(sums_[static_cast<size_t>(top - 1)]);
    int64_t end = parameters.gradient_floats();
    TrainingPass::Events events;
    if (exchange_) events.uses = [this](int64_t behind) { exchange_->await_values(behind); };
    events.complete = [&](int64_t offset) {
      complete(pass, {offset, end}, top, last);
      end = offset;
    };
    losses[static_cast<size_t>(top - 1)] += pass_.run(batch_of(pass), scale, key, events);
    for (int m = 0; m < pass.merges && top > 1; ++m, --top) {
      losses[static_cast<size_t>(top - 2)] += losses[static_cast<size_t>(top - 1)];
    }
  }
  parameters.sum_gradients_in(sums_[0]);
  return losses[0];
}

// Gradients of a pass that are complete: they join the sums that they are to be added to, and after the last pass they
// are ready to be sent.
void Trainer::complete(const GroupPiece& pass, FloatRange range, int top, bool last) {
  for (int m = 0; m < pass.merges && top > 1; ++m, --top) {
    float* from = sums_[static_cast<size_t>(top - 1)].data() + range.begin;
    float* to = sums_[static_cast<size_t>(top - 2)].data() + range.begin;
    context_.ranges(range.count(), 1 << 14, [&](int64_t b, int64_t e) { move_floats(from + b, to + b, e - b); });
  }
  if (last && exchange_) exchange_->gradients_complete(sums_[0], range.begin);
}

// Words between ranks; alone there is nobody to ask.
bool Trainer::any(bool here) {
  if (is_alone()) return here;
  const std::array<double, 1> own{here ? 1.0 : 0.0};
  return std::ranges::any_of(exchange_->share(own), [](double said) { return said > 0; });
}

double Trainer::of_root(double here) {
  if (is_alone()) return here;
  const std::array<double, 1> own{here};
  return exchange_->share(own)[0];
}

double Trainer::sum_of_ranks(double here) {
  if (is_alone()) return here;
  const std::array<double, 1> own{here};
  const std::span<const double> all = exchange_->share(own);
  std::array<double, kMostDepth> sums{};
  const std::vector<RowGroup> tree = tree_of_ranks(ranks_);
  sum_by_groups(
      {tree}, [&](int64_t rank, int64_t, int i) { sums[static_cast<size_t>(i)] = all[static_cast<size_t>(rank)]; },
      [&](int into, int from) { sums[static_cast<size_t>(into)] += sums[static_cast<size_t>(from)]; });
  return sums[0];
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
  const bool finite = std::isfinite(loss_) && std::isfinite(gradient_norm_);  // the same on all ranks
  if (!finite) finish_step();
  require(
      finite,
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

// Rank 0 writes; the others hand it their moments.
void Trainer::save(RunWriter* run) {
  if (std::exchange(saved_step_, step_) == step_) return;
  peak_memory_ = std::max(peak_memory_, peak_memory_bytes());
  if (!run) return moments_->send();
  run->save({.model = inputs_.model,
             .tokenizer = inputs_.tokenizer,
             .step = step_,
             .blocks = is_alone() ? optimizer_.blocks() : std::vector<NamedBlock>{},
             .blocks_in_parts = is_alone() ? std::vector<BlockInParts>{} : moments_->collected(),
             .training = TrainingState{.options = option_values(config_),
                                       .optimizer = optimizer_.numbers(),
                                       .data_hash = data_hash_,
                                       .seconds = seconds_,
                                       .peak_memory_bytes = static_cast<int64_t>(peak_memory_),
                                       .arithmetic = arithmetic(context_)},
             .from = inputs_.from});
}

// False when it was asked to stop.
bool Trainer::validate(RunWriter* run, const TrainerCallbacks& callbacks) {
  const int64_t length = inputs_.model.config().length;
  const std::optional<double> loss = callbacks.validate(length);
  if (any(!loss)) return false;
  MetricsRecord record{.step = step_, .seconds = seconds_, .valid_loss = *loss};
  std::string note = fmt::format("step {}: validation loss {:.4f}, perplexity {:.2f}", step_, *loss, std::exp(*loss));
  for (const int64_t other : config_.eval_lengths) {
    if (other == length) continue;
    const std::optional<double> there = callbacks.validate(other);
    if (any(!there)) return false;
    note += fmt::format("; {:.2f} at {}", std::exp(*there), other);
    if (std::isfinite(*there)) record.valid_losses.push_back({other, *there});
  }
  if (run) run->validated(record);
  callbacks.on_note(note);
  return true;
}

TrainResult Trainer::train(RunWriter* run, const TrainerCallbacks& callbacks) {
  const int64_t first = step_;
  data_hash_ = hex(inputs_.tokens.data_hash());
  const auto validation_due = [&] { return callbacks.validate && (at_end() || every(config_.eval_every)); };
  bool stopped = false;
  if (first > 0 && validation_due()) {  // a validation that was broken off, or not asked for then
    if (any(run && !run->valid_loss_at(first))) stopped = !validate(run, callbacks);
  }
  Clock clock(seconds_, step_);
  double saved = seconds_now();
  while (!stopped && !at_end()) {
    advance();
    seconds_ = of_root(clock.seconds());
    if (every(config_.log_every) || at_end() || step_ == 1) {
      const StepReport r = report(clock);
      if (run) run->log(r.metrics);
      callbacks.on_step(r);
    }
    clock.pause();
    stopped = !at_end() && any(callbacks.should_stop());
    const bool out_of_patience =
        config_.save_minutes > 0 && any(is_root() && seconds_now() - saved >= 60 * config_.save_minutes);
    // Saved first: nothing that happens during validation can lose what was trained.
    if (stopped || validation_due() || at_end() || every(config_.save_every) || out_of_patience) {
      finish_step();
      save(run);
      saved = seconds_now();
    }
    if (!stopped && validation_due()) stopped = !validate(run, callbacks);
    clock.go_on();
  }
  finish_step();
  return result(run, first, stopped);
}

TrainResult Trainer::result(const RunWriter* run, int64_t first, bool stopped) const {
  TrainResult result{.step = step_,
                     .finished = !stopped && at_end(),
                     .updates = step_ - first,
                     .loss = {},
                     .valid_loss = {},
                     .seconds = seconds_,
                     .tokens_per_second = static_cast<double>(step_ * tokens_per_step()) / std::max(seconds_, 1e-9),
                     .peak_memory_bytes = peak_memory_};
  for (const MetricsRecord& r : run ? run->records() : std::vector<MetricsRecord>{}) {
    if (r.loss) result.loss = r.loss;
    if (r.valid_loss) result.valid_loss = r.valid_loss;
  }
  if (step_ > first) result.loss = loss_;
  return result;
}

}  // namespace longshot
