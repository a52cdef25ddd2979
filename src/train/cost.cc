#include "train/cost.h"

#include <algorithm>

#include "base/clock.h"

namespace longshot {
namespace {

constexpr double kTrialFlops = 2e12;  // of a pass that is tried: seconds
constexpr double kTrialSeconds = 2;   // of passes, where one does not take longer
constexpr size_t kTrialPasses = 5;

double largest_share(const Shards& shards) {
  int64_t most = 0;
  for (int r = 0; r < shards.ranks(); ++r) most = std::max(most, shards.floats(r));
  return static_cast<double>(most);
}

// Passes and updates of a model of a few layers.
class Trial {
 public:
  struct Times {
    double output = 0;               // from the begin until the gradients of output and final norm are complete
    std::vector<double> backward{};  // of layers, the last one first
    double embedding = 0, update = 0;
  };

  Trial(Context& context, const ModelConfig& config, const TrainConfig& train, const BatchPlan& plan)
      : context_(context),
        plan_(plan),
        model_(config, true),
        pass_(context, model_, Trainer::pass_config(plan, train, config.length)),
        optimizer_(train.optimizer, model_.parameters()) {
    model_.initialize(context, train.seed);
  }

  // Of the pass that took the median time, the first left out.
  Times median(const Batch& batch) {
    std::vector<std::pair<double, Times>> passes;
    run(batch);
    double spent = 0;
    while (passes.size() < kTrialPasses && spent < kTrialSeconds) {
      const double start = seconds_now();
      const Times times = run(batch);
      passes.emplace_back(seconds_now() - start, times);
      spent += passes.back().first;
    }
    std::ranges::sort(passes, {}, [](const auto& p) { return p.first; });
    return passes[passes.size() / 2].second;
  }
  int64_t parameters() const { return model_.parameters().end(); }

 private:
  Times run(const Batch& batch) {
    const TrainingBatch all{.sequences = batch.sequences,
                            .length = batch.length,
                            .inputs = batch.inputs,
                            .targets = batch.targets,
                            .first_key = {},
                            .together = plan_.least,
                            .groups = plan_.passes[0].groups};
    std::vector<double> ends;  // of output, final norm, layers, embedding
    const double start = seconds_now();
    TrainingPass::Events events;
    events.complete = [&](int64_t) { ends.push_back(seconds_now()); };
    pass_.run(all, 1.0f / static_cast<float>(batch.target_count()), 1, events);
    Times times{.output = ends[1] - start, .embedding = ends.back() - ends[ends.size() - 2]};
    for (size_t i = 2; i + 1 < ends.size(); ++i) times.backward.push_back(ends[i] - ends[i - 1]);
    optimizer_.step(context_, 1e-4);
    times.update = seconds_now() - ends.back();
    return times;
  }

  Context& context_;
  const BatchPlan& plan_;
  Transformer model_;
  TrainingPass pass_;
  Optimizer optimizer_;
};

int64_t sequences_to_try(const ModelConfig& config, int64_t most) {
  const Transformer model(config, true, Transformer::Memory::kReserved);
  const double flops = training_flops_per_token(model, config.length) * static_cast<double>(config.length);
  return std::clamp<int64_t>(static_cast<int64_t>(kTrialFlops / flops), 1, most);
}

}  // namespace

BatchPlan busiest_plan(const TrainConfig& train, int64_t length, int ranks) {
  return Trainer::plan(train, length, ranks - 1, ranks);  // halves of an odd count: the second has more
}

StepCost predict_memory(Context& context, const ModelConfig& config, const TrainConfig& train, int ranks) {
  const BatchPlan plan = busiest_plan(train, config.length, ranks);
  Transformer model(config, true, Transformer::Memory::kReserved,
                    plan.shared_apart ? SharedGradients::kApart : SharedGradients::kTogether);
  const Parameters& parameters = model.parameters();
  const Shards shards(parameters, ranks);
  const int64_t floats = parameters.end() + plan.sums * parameters.gradient_floats() +
                         Optimizer::moments(train.optimizer) * static_cast<int64_t>(largest_share(shards));
  return {.parameters = parameters.count(),
          .state_bytes =
              static_cast<size_t>(floats) * sizeof(float) + (ranks > 1 ? ShardExchange::predict_bytes(shards) : 0),
          .activation_bytes =
              TrainingPass::predict_bytes(context, model, Trainer::pass_config(plan, train, config.length))};
}

PassTimes PassTimes::times(double factor) const {
  return {forward * factor, output * factor, last_backward * factor, backward * factor, embedding * factor};
}

double StepTrial::compute_seconds(const Transformer& model, const TrainConfig& train, int ranks) const {
  const double passes =
      static_cast<double>(busiest_plan(train, model.config().length, ranks).count) / static_cast<double>(sequences);
  return passes * pass.all(model.config().layers) + update * largest_share(Shards(model.parameters(), ranks));
}

// With f, b the times of a layer and t(n) of the pass of n layers until the output's gradients are complete:
//
//   f = t(2) - t(1),   output = t(1) - f,   b: the first of two layers in the backward pass of two
StepTrial try_step(Context& context, const ModelConfig& config, const TrainConfig& train, const TokenFile& tokens) {
  ModelConfig part = config;
  part.layers = std::min<int64_t>(config.layers, 2);
  const BatchPlan whole = busiest_plan(train, config.length, 1);
  const int64_t sequences = sequences_to_try(part, whole.longest);
  const auto longest = std::ranges::max_element(whole.passes, {}, &GroupPiece::count);
  const auto groups = std::max<int64_t>(std::ssize(longest->groups.groups), 1);
  const BatchPlan plan({.sequences = sequences, .groups = groups, .together = sequences});
  Batch batch;
  Batches(tokens, {.length = config.length, .sequences = sequences, .seed = train.seed}).fill(0, batch);
  StepTrial trial{.sequences = sequences};
  {
    Trial two(context, part, train, plan);
    const Trial::Times t = two.median(batch);
    trial.pass = {.output = t.output,
                  .last_backward = t.backward.front(),
                  .backward = t.backward.back(),
                  .embedding = t.embedding};
    trial.update = t.update / static_cast<double>(two.parameters());
  }
  if (config.layers > 1) {
    part.layers = 1;
    const double one = Trial(context, part, train, plan).median(batch).output;
    trial.pass.forward = std::max(trial.pass.output - one, 0.0);
    trial.pass.output = std::max(one - trial.pass.forward, 0.0);
  }
  trial.scratch_bytes = context.scratch(0).size_bytes();
  return trial;
}

}  // namespace longshot
