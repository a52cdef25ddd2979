// Training steps: where their time goes, with one thread and with all, beside a busy process, with each position method.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "formats/safetensors.h"
#include "kernels/peak.h"
#include "run/results.h"

namespace longshot {

TrainingStep::TrainingStep(Context& context, const ModelConfig& config, int64_t batch_tokens, uint64_t seed)
    : model(config, true),
      context_(context),
      length_(config.length),
      sequences_(batch_tokens / config.length),
      plan_({.sequences = sequences_, .together = sequences_}),
      pass_(context, model, {.sequences = sequences_, .length = length_, .groups = {plan_.passes[0].groups}}),
      optimizer_({}, model.parameters()),
      inputs_(random_tokens(tokens(), config.vocab, seed, 0)),
      targets_(random_tokens(tokens(), config.vocab, seed, 1)) {
  model.initialize(context, seed);
}

double TrainingStep::run() {
  const TrainingBatch batch{.sequences = sequences_,
                            .length = length_,
                            .inputs = inputs_,
                            .targets = targets_,
                            .first_key = {},
                            .together = plan_.least,
                            .groups = plan_.passes[0].groups};
  const auto count = static_cast<double>(tokens());
  const double loss = pass_.run(batch, static_cast<float>(1 / count), 1) / count;
  optimizer_.step(context_, 1e-4);
  return loss;
}

ModelConfig demo_model(int64_t length) {
  ModelConfig model;
  model.layers = 4, model.dim = 128, model.heads = 8, model.vocab = 256, model.length = length;
  model.validate();
  return model;
}

namespace {

constexpr size_t kZoneCount = static_cast<size_t>(Zone::kCount);

void save_weights(Transformer& model, const std::string& path) {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < model.parameters().tensors().size(); ++i) {
    const Tensor& t = model.parameters().tensors()[i];
    tensors.push_back({t.name, DType::kF32, t.shape, std::as_bytes(model.parameters().value(i))});
  }
  write_safetensors(path, tensors);
}

// Steps timed one by one. The zones and the whole are sums over the same steps, so that the parts add up.
class StepTimes {
 public:
  void run(TrainingStep& step) {
    Zones& zones = step.context().zones;
    zones = {};
    seconds_.push_back(seconds_of([&] { step.run(); }));
    total_ += seconds_.back();
    for (size_t z = 0; z < kZoneCount; ++z) zones_[z] += zones[z];
  }
  double last() const { return seconds_.back(); }
  double seconds() const { return median(seconds_); }
  // Shares of the whole by zone, and what no zone has under "rest".
  Json breakdown() const {
    Json shares;
    double rest = total_;
    for (size_t z = 0; z < kZoneCount; ++z) {
      shares[kZoneNames[z]] = zones_[z] / total_;
      rest -= zones_[z];
    }
    shares["rest"] = rest / total_;
    return shares;
  }

 private:
  std::vector<double> seconds_;
  double total_ = 0;
  Zones zones_{};
};

std::string shape_text(const ModelConfig& model, int64_t tokens) {
  return fmt::format("{} layers, dim {}, {} heads, ffn {}, vocabulary {}, length {}, {} tokens, {}", model.layers,
                     model.dim, model.heads, model.ffn_dim(), model.vocab, model.length, tokens, model.position);
}

// Prints a step and returns it as a record. `peak`: of the threads it ran on.
Json report_step(TrainingStep& step, const StepTimes& times, double peak) {
  const ModelConfig& model = step.model.config();
  const double seconds = times.seconds(), rate = static_cast<double>(step.tokens()) / seconds,
               percent = 100 * step.flops() / seconds / peak;
  const Json breakdown = times.breakdown();
  fmt::print("  {} thread{}: {:.4f} s, {:.0f} tokens/s, {:.1f}% of peak, {} allocated\n", step.context().threads(),
             step.context().threads() == 1 ? "" : "s", seconds, rate, percent,
             bytes_text(static_cast<double>(step.bytes())));
  for (const char* zone : kZoneNames) fmt::print("    {:<20} {:>6.1f}%\n", zone, 100 * breakdown[zone].get<double>());
  fmt::print("    {:<20} {:>6.1f}%\n", "row-wise, the rest", 100 * breakdown["rest"].get<double>());
  return {{"position", model.position},
          {"length", model.length},
          {"threads", step.context().threads()},
          {"seconds", seconds},
          {"tokens_per_second", rate},
          {"percent_of_peak", percent},
          {"memory_bytes", step.bytes()},
          {"peak_memory_bytes", peak_memory_bytes()},
          {"breakdown", breakdown}};
}

// A process that does nothing but keep a core busy, while this lives.
class BusyProcess {
 public:
  BusyProcess() : child_(::fork()) {
    require(child_ >= 0, "a second process cannot be started; is there a limit on processes?");
    if (child_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile uint64_t turns = 0;;) turns = turns + 1;
  }
  BusyProcess(const BusyProcess&) = delete;
  BusyProcess& operator=(const BusyProcess&) = delete;
  ~BusyProcess() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
};

// Steps a second over a stretch of time.
double steps_per_second(TrainingStep& step, double stretch) {
  int steps = 0;
  double seconds = 0;
  for (; seconds < stretch; ++steps) seconds += seconds_of([&] { step.run(); });
  return steps / seconds;
}

}  // namespace

void bench_step(Bench& bench) {
  const BenchSettings& s = bench.settings;
  TrainingStep step(bench.context, s.model, s.batch_tokens, s.seed);
  if (!s.weights.empty()) save_weights(step.model, s.weights);
  fmt::print("\ntraining step: {}\n", shape_text(s.model, step.tokens()));
  const double first_loss = step.run();
  step.run();
  StepTimes times;
  for (int i = 0; i < s.repeat; ++i) times.run(step);
  Json record = report_step(step, times, bench.peak);
  record["first_loss"] = first_loss;
  bench.out["step"].push_back(record);
}

// A step on all threads right after one on a single thread, so that both see the same machine.
void bench_demo(Bench& bench) {
  struct Row {
    int64_t length, tokens;
  };
  const int threads = bench.context.threads();
  Context alone(1);
  const double peak_alone = measure_peak_flops(alone, 0.1);
  for (const auto& [length, tokens] : {Row{64, 1024}, Row{256, 2048}}) {
    const ModelConfig model = demo_model(length);
    TrainingStep single(alone, model, tokens, bench.settings.seed),
        step(bench.context, model, tokens, bench.settings.seed);
    fmt::print("\ntraining step, the demo's model: {}\n", shape_text(model, tokens));
    StepTimes single_times, times;
    std::vector<double> ratios;
    for (int i = 0; i < 10 * bench.settings.repeat; ++i) {
      single.run();
      single_times.run(single);
      if (threads == 1) continue;
      step.run();
      times.run(step);
      ratios.push_back(single_times.last() / times.last());
    }
    bench.out["demo"].push_back(report_step(single, single_times, peak_alone));
    if (threads == 1) continue;
    Json record = report_step(step, times, bench.peak);
    record["times_one_thread"] = median(ratios);
    fmt::print("  {} threads are {:.2f} times as fast as one\n", threads, median(ratios));
    bench.out["demo"].push_back(record);
  }
}

void bench_shared(Bench& bench) {
  constexpr double kStretch = 1.0;  // seconds; the scheduler's slices are milliseconds
  fmt::print("\nthe demo's training step beside one busy process, of its speed alone\n");
  Context alone(1);
  for (Context* on : {&alone, &bench.context}) {
    TrainingStep step(*on, demo_model(64), 1024, bench.settings.seed);
    step.run();
    std::vector<double> ratios;
    for (int round = 0; round < bench.settings.repeat; ++round) {
      const double quiet = steps_per_second(step, kStretch);
      const BusyProcess busy;
      ratios.push_back(steps_per_second(step, kStretch) / quiet);
    }
    fmt::print("  {} thread{}: {:.2f}\n", on->threads(), on->threads() == 1 ? "" : "s", median(ratios));
    bench.out["shared"].push_back({{"threads", on->threads()}, {"of_quiet_speed", median(ratios)}, {"rounds", ratios}});
    if (bench.context.threads() == 1) break;
  }
}

// A step of each method right after a step without positions, and the median of the ratios: drift of the machine
// falls on both alike. Half the batch, twice the pairs.
void bench_positions(Bench& bench) {
  const BenchSettings& s = bench.settings;
  const int64_t tokens = std::max(s.batch_tokens / 2, s.model.length);
  fmt::print("\ncost of position methods, training at length {} (beside none)\n{:>12} {:>12} {:>10} {:>12}\n",
             s.model.length, "method", "tokens/s", "slower %", "memory");
  ModelConfig config = s.model;
  config.position = "none";
  TrainingStep none(bench.context, config, tokens, s.seed);
  for (const char* position : {"alibi", "sinusoidal", "rotary", "t5"}) {
    config.position = position;
    TrainingStep step(bench.context, config, tokens, s.seed);
    none.run(), step.run();
    std::vector<double> seconds, ratios;
    for (int round = 0; round < 2 * s.repeat; ++round) {
      const double base = seconds_of([&] { none.run(); });
      seconds.push_back(seconds_of([&] { step.run(); }));
      ratios.push_back(seconds.back() / base);
    }
    const double slower = 100 * (median(ratios) - 1);
    fmt::print("{:>12} {:>12.0f} {:>10.1f} {:>12}\n", position, static_cast<double>(step.tokens()) / median(seconds),
               slower, bytes_text(static_cast<double>(step.bytes())));
    flush_output();
    bench.out["positions"].push_back(
        {{"position", position}, {"slower_percent", slower}, {"memory_bytes", step.bytes()}});
  }
}

}  // namespace longshot
