// bf16 beside f32: the same work in turn, and the median of the ratios.
#include <functional>

#include "cli/bench.h"
#include "cli/command.h"
#include "kernels/bf16.h"
#include "model/inference.h"

namespace longshot {
namespace {

// `measure` returns seconds.
void compare_precisions(Bench& bench, const std::string& what, const std::function<double()>& measure) {
  std::vector<double> floats, halves, ratios;
  const auto timed = [&](Precision precision) {
    const PrecisionScope scope(bench.context, precision);
    return measure();
  };
  timed(Precision::kF32), timed(Precision::kBf16);
  for (int round = 0; round < bench.settings.repeat; ++round) {
    floats.push_back(timed(Precision::kF32)), halves.push_back(timed(Precision::kBf16));
    ratios.push_back(floats.back() / halves.back());
  }
  fmt::print("{:>40} {:>10.4f} {:>10.4f} {:>8.2f}x\n", what, median(floats), median(halves), median(ratios));
  flush_output();
  bench.out["precision"].push_back({{"what", what},
                                    {"f32_seconds", median(floats)},
                                    {"bf16_seconds", median(halves)},
                                    {"ratio", median(ratios)},
                                    {"way", name_of(bf16_path())}});
}

void compare_products(Bench& bench) {
  const ModelConfig& model = bench.settings.model;
  const int64_t rows = bench.settings.batch_tokens;
  constexpr std::pair<ProductForm, const char*> kForms[] = {{ProductForm::kForward, "forward"},
                                                            {ProductForm::kInputGradient, "input gradient"},
                                                            {ProductForm::kWeightGradient, "weight gradient"}};
  for (const Matrix& w : matrices_of(model)) {
    for (const auto& [form, name] : kForms) {
      const ProductCase product{form, rows, w.outputs, w.inputs};
      compare_precisions(bench, fmt::format("{} {} x {} x {}", name, rows, w.outputs, w.inputs),
                         [&] { return time_product(bench, product); });
    }
  }
}

void compare_evaluations(Bench& bench) {
  const BenchSettings& settings = bench.settings;
  Transformer model(settings.model, false);
  model.initialize(bench.context, settings.seed);
  for (const int64_t length : {int64_t{512}, int64_t{8192}}) {
    Inference inference(bench.context, model, {.sequences = 1, .tokens = length});
    const std::vector<int32_t> inputs = random_tokens(length, settings.model.vocab, settings.seed, 0),
                               targets = random_tokens(length, settings.model.vocab, settings.seed, 1);
    std::vector<float> losses(static_cast<size_t>(length));
    const auto score = [&] {
      inference.score({.inputs = inputs, .length = length, .first_key = {}}, targets, 0, losses);
    };
    compare_precisions(bench, fmt::format("evaluation, length {}", length), [&] { return seconds_of(score); });
  }
}

}  // namespace

void bench_precision(Bench& bench) {
  fmt::print("\nbf16 ({}) beside f32, operands converted inside the clock\n{:>40} {:>10} {:>10} {:>9}\n",
             name_of(bf16_path()), "", "f32 s", "bf16 s", "ratio");
  compare_products(bench);
  const BenchSettings& settings = bench.settings;
  compare_precisions(bench, "attention both ways, head dim 64, length 2048", [&] {
    const AttentionTimes times = time_attention(bench, {settings.model.heads, 64, 2048, "linear"});
    return times.forward + times.backward;
  });
  TrainingStep step(bench.context, settings.model, settings.batch_tokens, settings.seed);
  compare_precisions(bench, fmt::format("step, dim {}, length {}", settings.model.dim, settings.model.length),
                     [&] { return seconds_of([&] { step.run(); }); });
  TrainingStep demo(bench.context, demo_model(64), 1024, settings.seed);
  const auto ten_steps = [&] {
    for (int i = 0; i < 10; ++i) demo.run();
  };
  compare_precisions(bench, "ten steps of the demo's shape", [&] { return seconds_of(ten_steps); });
  compare_evaluations(bench);
}

}  // namespace longshot
