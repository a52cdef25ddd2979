// Every instruction set this CPU can run, each against the peak of its own multiply-adds.
#include "cli/bench.h"
#include "cli/command.h"
#include "kernels/peak.h"

namespace longshot {
namespace {

constexpr double kBudget = 3.0;  // seconds of steps: emulated vectors are slow

double step_percent(Bench& bench, const ModelConfig& model, int64_t tokens) {
  TrainingStep step(bench.context, model, tokens, bench.settings.seed);
  return bench.share(step.flops(), median_seconds(
                                       4 * bench.settings.repeat, [&] { step.run(); }, kBudget));
}

}  // namespace

void bench_targets(Bench& bench) {
  const ModelConfig& model = bench.settings.model;
  fmt::print(
      "\ninstruction sets, % of the peak of each: products and a step of the model, attention (D 64, L 2048, "
      "linear bias), a step of the demo's\n{:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
      "", "GFLOP/s", "x W^T", "dy W", "dy^T x", "forward", "fwd+bwd", "step", "demo");
  const double peak_before = bench.peak;
  for (const std::string& name : instruction_sets()) {
    const ForcedInstructionSet forced(name);
    bench.peak = measure_peak_flops(bench.context, 0.2);
    Json row = {{"instruction_set", name}, {"peak_gflops", bench.peak / 1e9}};
    const auto product = [&](ProductForm form) {
      const ProductCase shape{form, model.length, model.ffn_dim(), model.dim};
      return bench.share(shape.flops(), time_product(bench, shape));
    };
    row["forward_percent"] = product(ProductForm::kForward);
    row["input_gradient_percent"] = product(ProductForm::kInputGradient);
    row["weight_gradient_percent"] = product(ProductForm::kWeightGradient);
    const AttentionTimes t = time_attention(bench, {model.heads, 64, 2048, "linear"});
    row["attention_forward_percent"] = bench.share(t.flops, t.forward);
    row["attention_both_percent"] = bench.share(3 * t.flops, t.forward + t.backward);
    row["step_percent"] = step_percent(bench, model, model.length);
    row["demo_percent"] = step_percent(bench, demo_model(64), 1024);
    fmt::print("{:>8} {:>9.1f}", name, bench.peak / 1e9);
    for (const char* column : {"forward_percent", "input_gradient_percent", "weight_gradient_percent",
                               "attention_forward_percent", "attention_both_percent", "step_percent", "demo_percent"}) {
      fmt::print(" {:>9.1f}", row[column].get<double>());
    }
    fmt::print("\n");
    flush_output();
    bench.out["targets"].push_back(row);
  }
  bench.peak = peak_before;
}

}  // namespace longshot
