// Row-wise kernels, the optimizer and attention, each alone.
#include <functional>

#include "cli/bench.h"
#include "kernels/attention_call.h"
#include "kernels/norm.h"
#include "kernels/peak.h"
#include "kernels/rowwise.h"
#include "kernels/update.h"

namespace longshot {

void bench_machine(Bench& bench) {
  const double bandwidth = measure_read_bandwidth(bench.context);
  fmt::print("memory read {:.1f} GB/s\n", bandwidth / 1e9);
  bench.out["read_gb_per_second"] = bandwidth / 1e9;
}

// Kernels that move memory: their share of what a plain read loop moves on the same threads.
void bench_rows(Bench& bench) {
  const ModelConfig& model = bench.settings.model;
  const int64_t rows = bench.settings.batch_tokens, c = model.dim, f = model.ffn_dim(), v = model.vocab;
  std::vector<float> x(static_cast<size_t>(rows * f), 0.5f), y(x.size()), logits(static_cast<size_t>(rows * v), 0.1f),
      weight(static_cast<size_t>(f), 1.0f), mean(static_cast<size_t>(rows)), rstd(mean), losses(mean);
  const std::vector<int32_t> targets(static_cast<size_t>(rows), 1);
  const Mat xc(x.data(), rows, c), yc(y.data(), rows, c), xf(x.data(), rows, f), yf(y.data(), rows, f),
      l(logits.data(), rows, v);
  const Norm norm{.weight = std::span(weight).first(static_cast<size_t>(c)), .bias = {}};
  const double bandwidth = measure_read_bandwidth(bench.context);
  fmt::print("\nrow-wise kernels and the optimizer, {} rows\n{:>24} {:>10} {:>10}\n", rows, "", "GB/s", "% of read");
  Context& on = bench.context;
  const auto measure = [&](const char* name, int64_t floats, const std::function<void()>& kernel) {
    const double seconds = median_seconds(bench.settings.repeat, kernel);
    const double rate = static_cast<double>(floats) * sizeof(float) / seconds;
    fmt::print("{:>24} {:>10.1f} {:>10.0f}\n", name, rate / 1e9, 100 * rate / bandwidth);
    bench.out["rows"].push_back(
        {{"kernel", name}, {"gb_per_second", rate / 1e9}, {"percent_of_read", 100 * rate / bandwidth}});
  };
  const NormStats stats{mean, rstd};
  measure("norm", 2 * rows * c, [&] { norm_forward(on, norm, xc, yc, stats); });
  measure("norm backward", 4 * rows * c, [&] { norm_backward(on, norm, xc, {xc, stats}, yc); });
  measure("residual", 3 * rows * c, [&] { add_residual(on, xc, {yc, weight.data(), {}}, yc); });
  for (const Activation kind : {Activation::kRelu, Activation::kGelu}) {
    measure(name_of(kActivations, kind), 3 * rows * f, [&] {
      activation_forward(on, {kind, weight.data(), {}}, xf, yf);
    });
  }
  measure("cross-entropy", 2 * rows * v, [&] { cross_entropy(on, l, targets, losses, 1e-3f); });
  // The optimizer's four arrays.
  std::vector<float> state(static_cast<size_t>(4 * rows * f), 1e-3f);
  measure("AdamW", 8 * rows * f, [&] {
    on.ranges(rows, 16, [&](int64_t begin, int64_t end) {
      float* at = state.data() + begin * f;
      const int64_t apart = rows * f;
      adamw_update({.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .correction1 = 1, .correction2 = 1},
                   {at, at + apart, at + 2 * apart, at + 3 * apart, (end - begin) * f, 1, 0});
    });
  });
}

AttentionTimes time_attention(const Bench& bench, const AttentionCase& a) {
  constexpr double kBudget = 1.0;
  const int64_t width = a.heads * a.head_dim, size = a.length * width;
  // The slope of the head in the middle: its far probabilities are denormal from a distance of 1,400 on.
  const std::vector<float> slopes(static_cast<size_t>(a.heads), 0x1p-4f),
      table(static_cast<size_t>(a.heads * a.length), 0.1f);
  std::vector<float> d_table(table.size());
  AttentionProblem problem{.queries = a.length, .keys = a.length, .heads = a.heads, .head_dim = a.head_dim};
  if (a.bias == "linear") problem.bias = {.kind = DistanceBias::Kind::kLinear, .slopes = slopes};
  if (a.bias == "table")
    problem.bias = {.kind = DistanceBias::Kind::kTable, .table = {table.data(), a.heads, a.length}};
  // Queries, keys and values side by side, as a layer has them.
  const std::vector<float> qkv = random_floats(3 * size, bench.settings.seed, 1),
                           d_out = random_floats(size, bench.settings.seed, 2);
  std::vector<float> out(d_out.size()), d_qkv(qkv.size());
  const auto of_three = [&]<class T>(T* x, int64_t part) {
    return BasicHeads<T>{x + part * width, 3 * size, 3 * width, a.head_dim};
  };
  const auto heads = [&](auto& x) { return packed_heads(x.data(), a.length, a.heads, a.head_dim); };
  const AttentionInputs inputs{of_three(qkv.data(), 0), of_three(qkv.data(), 1), of_three(qkv.data(), 2)};
  AttentionInputGradients gradients{
      .d_q = of_three(d_qkv.data(), 0), .d_k = of_three(d_qkv.data(), 1), .d_v = of_three(d_qkv.data(), 2)};
  if (a.bias == "table") gradients.d_table = {d_table.data(), a.heads, a.length};
  Attention attention(problem);
  AttentionTimes times{};
  times.forward = median_seconds(
      bench.settings.repeat, [&] { attention.forward(bench.context, inputs, heads(out)); }, kBudget);
  times.backward = median_seconds(
      bench.settings.repeat,
      [&] { attention.backward(bench.context, inputs, ConstHeads(heads(out)), heads(d_out), gradients); }, kBudget);
  times.flops = 2.0 * static_cast<double>(a.length) * static_cast<double>(size);
  return times;
}

void bench_attention(Bench& bench) {
  const int64_t heads = bench.settings.model.heads;
  fmt::print("\nattention kernels, {} heads, causal work counted once\n{:>6} {:>6} {:>8} {:>12} {:>12}\n", heads, "D",
             "L", "bias", "forward %", "fwd+bwd %");
  for (const int64_t dim : bench.settings.head_dims) {
    for (const int64_t length : bench.settings.attention_lengths) {
      for (const char* bias : {"none", "linear", "table"}) {
        const AttentionTimes t = time_attention(bench, {heads, dim, length, bias});
        const double forward = bench.share(t.flops, t.forward), both = bench.share(3 * t.flops, t.forward + t.backward);
        fmt::print("{:>6} {:>6} {:>8} {:>12.1f} {:>12.1f}\n", dim, length, bias, forward, both);
        bench.out["attention"].push_back({{"head_dim", dim},
                                          {"length", length},
                                          {"bias", bias},
                                          {"forward_percent", forward},
                                          {"both_percent", both}});
      }
    }
  }
}

}  // namespace longshot
