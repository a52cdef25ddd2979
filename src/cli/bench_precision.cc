// bf16 beside f32: the same work in turn, and the median of the ratios; what a step takes in memory.
#include <array>
#include <functional>

#include "base/quantity.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "kernels/bf16.h"
#include "kernels/peak.h"
#include "model/inference.h"

namespace longshot {
namespace {

class PrecisionBench {
 public:
  explicit PrecisionBench(Bench& bench) : bench_(bench), peak_(measure_bf16_peak_flops(bench.context, 0.3)) {}

  void run() {
    fmt::print("\nbf16 ({}) beside f32, operands converted inside the clock; its peak {:.1f} GFLOP/s\n",
               name_of(bf16_path()), peak_ / 1e9);
    fmt::print("{:>46} {:>10} {:>10} {:>9} {:>8} {:>8}\n", "", "f32 s", "bf16 s", "ratio", "% f32", "% bf16");
    bench_.out["bf16_peak_gflops"] = peak_ / 1e9;
    products();
    attention();
    steps();
    evaluations();
    memory();
  }

 private:
  struct Work {
    std::string what;
    double flops;
  };
  // `measure` returns seconds.
  void compare(const Work& work, const std::function<double()>& measure);
  void products();
  void attention();
  void step(const std::string& what, const ModelConfig& model, int64_t tokens, int times);
  void steps();
  void evaluations();
  void memory();
  void memory_of(const std::string& what, const ModelConfig& model, int64_t tokens);

  Bench& bench_;
  double peak_;  // flops a second of the way in use
};

void PrecisionBench::compare(const Work& work, const std::function<double()>& measure) {
  std::vector<double> floats, halves, ratios;
  const auto timed = [&](Precision precision) {
    const PrecisionScope scope(bench_.context, precision);
    return measure();
  };
  timed(Precision::kF32), timed(Precision::kBf16);
  for (int round = 0; round < bench_.settings.repeat; ++round) {
    floats.push_back(timed(Precision::kF32)), halves.push_back(timed(Precision::kBf16));
    ratios.push_back(floats.back() / halves.back());
  }
  const double of_floats = bench_.share(work.flops, median(floats)),
               of_halves = 100 * work.flops / median(halves) / peak_;
  fmt::print("{:>46} {:>10.4f} {:>10.4f} {:>8.2f}x {:>8.1f} {:>8.1f}\n", work.what, median(floats), median(halves),
             median(ratios), of_floats, of_halves);
  flush_output();
  bench_.out["precision"].push_back({{"what", work.what},
                                     {"f32_seconds", median(floats)},
                                     {"bf16_seconds", median(halves)},
                                     {"ratio", median(ratios)},
                                     {"f32_percent_of_peak", of_floats},
                                     {"bf16_percent_of_peak", of_halves},
                                     {"way", name_of(bf16_path())}});
}

void PrecisionBench::products() {
  const int64_t rows = bench_.settings.batch_tokens;
  constexpr std::pair<ProductForm, const char*> kForms[] = {{ProductForm::kForward, "forward"},
                                                            {ProductForm::kInputGradient, "input gradient"},
                                                            {ProductForm::kWeightGradient, "weight gradient"}};
  for (const Matrix& w : matrices_of(bench_.settings.model)) {
    for (const auto& [form, name] : kForms) {
      const ProductCase product{form, rows, w.outputs, w.inputs};
      compare({fmt::format("{} {} x {} x {}", name, rows, w.outputs, w.inputs), product.flops()},
              [&] { return time_product(bench_, product); });
    }
  }
}

void PrecisionBench::attention() {
  const AttentionCase shape{bench_.settings.model.heads, 64, 2048, "linear"};
  const double flops = 3 * time_attention(bench_, shape).flops;
  compare({"attention both ways, head dim 64, length 2048", flops}, [&] {
    const AttentionTimes times = time_attention(bench_, shape);
    return times.forward + times.backward;
  });
}

// A step for each precision: what it keeps for its backward pass is stored in it.
void PrecisionBench::step(const std::string& what, const ModelConfig& model, int64_t tokens, int times) {
  Context& context = bench_.context;
  const uint64_t seed = bench_.settings.seed;
  TrainingStep floats(context, model, tokens, seed);
  const PrecisionScope scope(context, Precision::kBf16);
  TrainingStep halves(context, model, tokens, seed);
  compare({what, times * floats.flops()}, [&] {
    TrainingStep& step = context.precision() == Precision::kF32 ? floats : halves;
    return seconds_of([&] {
      for (int i = 0; i < times; ++i) step.run();
    });
  });
}

void PrecisionBench::steps() {
  const BenchSettings& s = bench_.settings;
  step(fmt::format("step, dim {}, length {}", s.model.dim, s.model.length), s.model, s.batch_tokens, 1);
  step("ten steps of the demo's shape", demo_model(64), 1024, 10);
}

void PrecisionBench::evaluations() {
  const BenchSettings& settings = bench_.settings;
  Transformer model(settings.model, false);
  model.initialize(bench_.context, settings.seed);
  for (const int64_t length : {int64_t{512}, int64_t{8192}}) {
    Inference inference(bench_.context, model, {.sequences = 1, .tokens = length});
    const std::vector<int32_t> inputs = random_tokens(length, settings.model.vocab, settings.seed, 0),
                               targets = random_tokens(length, settings.model.vocab, settings.seed, 1);
    std::vector<float> losses(static_cast<size_t>(length));
    const auto score = [&] {
      inference.score({.inputs = inputs, .length = length, .first_key = {}}, targets, 0, losses);
    };
    compare({fmt::format("evaluation, length {}", length), model.flops_per_token(length) * static_cast<double>(length)},
            [&] { return seconds_of(score); });
  }
}

void PrecisionBench::memory() {
  const BenchSettings& s = bench_.settings;
  fmt::print("\nmemory of a step that is neither parameters, gradients nor moments\n{:>46} {:>10} {:>10} {:>9}\n", "",
             "f32", "bf16", "bf16/f32");
  memory_of(fmt::format("step, dim {}, length {}", s.model.dim, s.model.length), s.model, s.batch_tokens);
  memory_of("the demo's shape", demo_model(64), 1024);
}

void PrecisionBench::memory_of(const std::string& what, const ModelConfig& model, int64_t tokens) {
  std::array<double, 2> bytes{};
  for (const auto& [name, precision] : kPrecisions) {
    Context context(bench_.context.threads());
    context.set_precision(precision);
    TrainingStep step(context, model, tokens, bench_.settings.seed);
    step.run();
    bytes[static_cast<size_t>(precision)] = static_cast<double>(step.working_bytes());
  }
  const auto [floats, halves] = bytes;
  fmt::print("{:>46} {:>10} {:>10} {:>9.2f}\n", what, bytes_text(floats), bytes_text(halves), halves / floats);
  bench_.out["precision_memory"].push_back(
      {{"what", what}, {"f32_bytes", floats}, {"bf16_bytes", halves}, {"ratio", halves / floats}});
}

}  // namespace

void bench_precision(Bench& bench) { PrecisionBench(bench).run(); }

}  // namespace longshot
