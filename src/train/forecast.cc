#include "train/forecast.h"

#include <algorithm>

namespace longshot {
namespace {

constexpr int kWords = 4;  // exchanges of single numbers: the loss, the time, whether to stop, whether to save

// What leaves a rank, one behind the other.
class Line {
 public:
  explicit Line(const Link& link) : link_(link) {}
  // Ready at a time, when it has arrived.
  double send(double ready, int64_t bytes) {
    const double seconds = static_cast<double>(bytes) / link_.bytes_per_second;
    busy_ += seconds, bytes_ += bytes;
    free_ = std::max(free_, ready) + seconds;
    return free_ + link_.latency;
  }
  int64_t bytes() const { return bytes_; }
  double busy() const { return busy_; }

 private:
  Link link_;
  double free_ = 0, busy_ = 0;
  int64_t bytes_ = 0;
};

int64_t bytes_to_others(const Bucket& bucket) {
  return (bucket.cuts.back() - bucket.begin() - bucket.of(0).count()) * static_cast<int64_t>(sizeof(float));
}

// When the last pass has completed the gradients from `offset` on.
double complete_at(const Transformer& model, const PassTimes& pass, int64_t offset) {
  const int64_t layers = model.config().layers;
  if (offset >= model.gradients_of_final_norm()) return pass.until_output(layers);
  for (int64_t i = layers; i-- > 0;) {
    if (offset >= model.gradients_of_layer(i)) return pass.until_layers(layers, layers - i);
  }
  return pass.all(layers);
}

// Each layer runs forward when its parameters have arrived.
double waiting_for_values(const Transformer& model, const Shards& shards, const PassTimes& pass, Line& line) {
  const int64_t layers = model.config().layers, others = shards.ranks() - 1;
  double now = 0, arrived = 0;
  auto bucket = shards.of_values().begin();
  const auto await = [&](int64_t end) {
    for (; bucket != shards.of_values().end() && bucket->begin() < end; ++bucket)
      arrived = line.send(0, others * bucket->of(0).count() * static_cast<int64_t>(sizeof(float)));
    now = std::max(now, arrived);
  };
  await(model.gradients_of_layer(0));
  for (int64_t i = 0; i < layers; ++i) {
    await(i + 1 < layers ? model.gradients_of_layer(i + 1) : model.gradients_of_final_norm());
    now += pass.forward;
  }
  await(model.parameters().end());
  return now - static_cast<double>(layers) * pass.forward;
}

}  // namespace

StepForecast forecast_step(const Transformer& model, const TrainConfig& train, const StepTrial& trial, const Link& link,
                           int ranks) {
  StepForecast f{.compute = trial.compute_seconds(model, train, ranks),
                 .alone = trial.compute_seconds(model, train, 1)};
  if (ranks == 1) return f;
  const Shards shards(model.parameters(), ranks);
  const BatchPlan plan = busiest_plan(train, model.config().length, ranks);
  const int64_t others = ranks - 1;
  const auto share = [&](int64_t count) { return static_cast<double>(count) / static_cast<double>(trial.sequences); };

  // From the begin of the last pass.
  const PassTimes last = trial.pass.times(share(plan.passes.back().count));
  const double computed = last.all(model.config().layers);
  Line line(link);
  double arrived = computed;
  for (const Bucket& b : shards.of_gradients()) {
    arrived = std::max(arrived, line.send(complete_at(model, last, b.begin()), bytes_to_others(b)));
  }
  const int64_t units = std::ranges::count(shards.units(), 0, &NormUnit::owner);
  arrived = line.send(arrived, others * units * static_cast<int64_t>(sizeof(double)));
  f.waiting = arrived - computed;

  // From the begin of the first pass, or the end of the last step's update.
  Line values(link);
  f.waiting += waiting_for_values(model, shards, trial.pass.times(share(plan.passes.front().count)), values);
  f.waiting += kWords * link.latency;
  f.bytes_sent = line.bytes() + values.bytes();
  f.sending = line.busy() + values.busy();
  return f;
}

}  // namespace longshot
