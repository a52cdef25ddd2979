// What this machine can do, and what share of it Longshot reaches. Ratios inside one run; nothing is asserted.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/context.h"
#include "base/error.h"
#include "base/rng.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "formats/safetensors.h"
#include "kernels/gemm.h"
#include "kernels/peak.h"
#include "kernels/rowwise.h"
#include "kernels/update.h"
#include "model/inference.h"
#include "model/training.h"
#include "run/results.h"
#include "train/optimizer.h"

namespace longshot {
namespace {

template <class F>
double seconds_of(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Median time of `repeat` calls, after one that warms up.
template <class F>
double median_seconds(int repeat, F&& f) {
  std::vector<double> times;
  f();
  for (int i = 0; i < repeat; ++i) times.push_back(seconds_of(f));
  return median(times);
}

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab, uint64_t seed, uint64_t offset) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(random_bits(seed, Stream::kTest, static_cast<uint64_t>(i) + offset) %
                                          static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

// A model and all that one update of it takes: forward, backward, optimizer.
class TrainingStep {
 public:
  TrainingStep(Context& context, const ModelConfig& config, int64_t batch_tokens, uint64_t seed)
      : model(config, true),
        context_(context),
        length_(config.length),
        sequences_(batch_tokens / config.length),
        pass_(context, model, {.sequences = sequences_, .length = length_}),
        optimizer_({}, model.parameters()),
        inputs_(random_tokens(tokens(), config.vocab, seed, 0)),
        targets_(random_tokens(tokens(), config.vocab, seed, 1)) {
    model.initialize(context, seed);
  }

  // Returns the mean loss before the update.
  double run() {
    const TrainingBatch batch{
        .sequences = sequences_, .length = length_, .inputs = inputs_, .targets = targets_, .first_key = {}};
    const double count = static_cast<double>(tokens());
    const double loss = pass_.run(batch, static_cast<float>(1 / count), 1) / count;
    optimizer_.step(context_, 1e-4);
    return loss;
  }

  int64_t tokens() const { return sequences_ * length_; }
  double flops() { return training_flops_per_token(model, length_) * static_cast<double>(tokens()); }
  size_t bytes() { return pass_.bytes() + model.parameters().values().size() * 16; }

  Transformer model;

 private:
  Context& context_;
  int64_t length_, sequences_;
  TrainingPass pass_;
  Optimizer optimizer_;
  std::vector<int32_t> inputs_, targets_;
};

class BenchCommand : public Command {
 public:
  BenchCommand() { model_.layers = 8, model_.dim = 512, model_.heads = 8, model_.length = 512, model_.vocab = 16384; }

  void options(Options& o) override {
    o.add("what", what_, "parts to measure: machine, gemm, rows, attention, step, positions, eval");
    o.add("vocab", model_.vocab, "vocabulary size");
    o.add("batch-tokens", batch_tokens_, "tokens of a training step");
    o.add("eval-lengths", eval_lengths_, "lengths to evaluate at");
    o.add("attention-lengths", attention_lengths_, "lengths of the attention kernels' rows");
    o.add("repeat", repeat_, "repetitions; the median counts");
    o.add("seed", seed_, "of weights and tokens");
    o.add("save-weights", weights_, "write the initial weights of the training step to this safetensors file");
    o.add("json", json_, "write the measurements to this file");
    o.add("threads", threads_, "0: all cores");
    model_.fields(o);
  }

  int run() override {
    context_.emplace(threads_);
    model_.validate();
    require_usage(batch_tokens_ >= model_.length, "--batch-tokens ({}) must hold one sequence of --length {}",
                  batch_tokens_, model_.length);
    require_usage(repeat_ > 0, "--repeat must be positive, not {}", repeat_);
    require_usage(!what_.empty(), "--what names no part to measure");
    peak_ = measure_peak_flops(*context_, 0.3);
    const Machine machine = this_machine(context_->threads());
    json_out_ = {{"cpu", machine.cpu}, {"threads", context_->threads()}, {"peak_gflops", peak_ / 1e9}};
    fmt::print("{}, {} threads, {}: peak {:.1f} GFLOP/s fp32\n", machine.cpu, context_->threads(), instruction_set(),
               peak_ / 1e9);
    std::vector<double> held;
    for (const std::string& part : what_) {
      if (part == "machine")
        bench_machine();
      else if (part == "gemm")
        bench_gemm();
      else if (part == "rows")
        bench_rows();
      else if (part == "attention")
        bench_attention();
      else if (part == "step")
        bench_step();
      else if (part == "positions")
        bench_positions();
      else if (part == "eval")
        bench_eval();
      else
        fail_usage("--what: '{}' is not a part", part);
      held.push_back(100 * measure_fma_rate(*context_, 0.2).mean / peak_);
      std::fflush(stdout);
    }
    fmt::print("\nbetween these parts the FMA loop itself held {:.0f}% of its peak (median; lowest {:.0f}%)\n",
               median(held), *std::min_element(held.begin(), held.end()));
    json_out_["fma_held_percent"] = held;
    if (!json_.empty()) write_json(json_, json_out_);
    return 0;
  }

 private:
  double share(double flops, double seconds) const { return 100 * flops / seconds / peak_; }

  void bench_machine() {
    const double bandwidth = measure_read_bandwidth(*context_);
    fmt::print("memory read {:.1f} GB/s\n", bandwidth / 1e9);
    json_out_["read_gb_per_second"] = bandwidth / 1e9;
  }

  void bench_gemm() {
    fmt::print("\nmatrix products of the model's shapes\n{:>28} {:>10} {:>8}\n", "m x n x k", "GFLOP/s", "% peak");
    const int64_t rows = batch_tokens_, c = model_.dim, f = model_.ffn_dim();
    for (const auto& [n, k] : {std::pair{3 * c, c}, {c, c}, {f, c}, {c, f}, {model_.vocab, c}}) {
      std::vector<float> x(static_cast<size_t>(rows * k), 0.5f), w(static_cast<size_t>(n * k), 0.25f),
          y(static_cast<size_t>(rows * n));
      const double seconds = median_seconds(repeat_, [&] {
        gemm_nt(*context_, {x.data(), rows, k}, {w.data(), n, k}, {y.data(), rows, n});
      });
      const double flops = 2.0 * static_cast<double>(rows * n * k);
      fmt::print("{:>28} {:>10.1f} {:>8.1f}\n", fmt::format("{} x {} x {}", rows, n, k), flops / seconds / 1e9,
                 share(flops, seconds));
      json_out_["gemm"].push_back({{"m", rows},
                                   {"n", n},
                                   {"k", k},
                                   {"gflops", flops / seconds / 1e9},
                                   {"percent_of_peak", share(flops, seconds)}});
    }
  }

  // Kernels that move memory: their share of what a plain read loop moves on the same threads.
  void bench_rows() {
    const int64_t rows = batch_tokens_, c = model_.dim, f = model_.ffn_dim(), v = model_.vocab;
    std::vector<float> x(static_cast<size_t>(rows * f), 0.5f), y(x.size()), logits(static_cast<size_t>(rows * v), 0.1f),
        weight(static_cast<size_t>(f), 1.0f), mean(static_cast<size_t>(rows)), rstd(mean), losses(mean);
    const std::vector<int32_t> targets(static_cast<size_t>(rows), 1);
    const Mat xc(x.data(), rows, c), yc(y.data(), rows, c), xf(x.data(), rows, f), yf(y.data(), rows, f),
        l(logits.data(), rows, v);
    const Norm norm{.weight = std::span(weight).first(static_cast<size_t>(c)), .bias = {}};
    const double bandwidth = measure_read_bandwidth(*context_);
    fmt::print("\nrow-wise kernels and the optimizer, {} rows\n{:>24} {:>10} {:>10}\n", rows, "", "GB/s", "% of read");
    Context& on = *context_;
    const auto measure = [&](const char* name, int64_t floats, const std::function<void()>& kernel) {
      const double seconds = median_seconds(repeat_, kernel);
      const double rate = static_cast<double>(floats) * sizeof(float) / seconds;
      fmt::print("{:>24} {:>10.1f} {:>10.0f}\n", name, rate / 1e9, 100 * rate / bandwidth);
      json_out_["rows"].push_back(
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

  void bench_attention() {
    fmt::print("\nattention kernels, {} heads, causal work counted once\n{:>6} {:>6} {:>8} {:>12} {:>12}\n",
               model_.heads, "D", "L", "bias", "forward %", "fwd+bwd %");
    for (const int64_t dim : {int64_t{64}, int64_t{128}}) {
      for (const int64_t length : attention_lengths_) {
        for (const char* bias : {"none", "linear", "table"}) bench_attention_case(dim, length, bias);
      }
    }
  }

  void bench_attention_case(int64_t dim, int64_t length, const std::string& kind) {
    const AttentionShape shape{.sequences = 1, .queries = length, .heads = model_.heads, .head_dim = dim};
    const int64_t width = shape.width();
    AttentionOptions options;
    std::vector<float> slopes(static_cast<size_t>(shape.heads), 0x1p-4f),
        table(static_cast<size_t>(shape.heads * length), 0.1f);
    if (kind == "linear") options.bias = {.kind = DistanceBias::Kind::kLinear, .slopes = slopes, .table = {}};
    if (kind == "table") {
      options.bias = {.kind = DistanceBias::Kind::kTable,
                      .slopes = {},
                      .table = {table.data(), shape.heads, length},
                      .wants_gradient = true};
    }
    KeyStore store;
    Mat qkv, out, d_out, d_qkv, d_bias;
    std::span<float> lse;
    std::span<VisitedTiles> visited;
    const Workspace memory([&](Layout& at) {
      store.layout(at, {1, shape.heads, dim, length});
      qkv = at.mat(length, 3 * width), out = at.mat(length, width);
      d_qkv = at.mat(length, 3 * width), d_out = at.mat(length, width), d_bias = at.mat(shape.heads, length);
      lse = at.array<float>(shape.heads * length);
      visited = at.array<VisitedTiles>(shape.heads * shape.query_tiles());
    });
    for (int64_t i = 0; i < qkv.rows * qkv.cols; ++i)
      qkv.data[i] = static_cast<float>(uniform01(random_bits(seed_, Stream::kTest, 1, static_cast<uint64_t>(i))) - 0.5);
    for (int64_t i = 0; i < d_out.rows * d_out.cols; ++i) d_out.data[i] = 0.01f;
    const std::vector<int64_t> position = {0};
    const auto heads = [&](Mat m, int64_t part = 0) { return heads_of(m.cols_from(part * width, width), length, dim); };
    const auto forward = [&] {
      append_keys(*context_, {heads(qkv, 1), heads(qkv, 2), length, position}, {}, store);
      attention_forward(*context_, shape, options, {heads(qkv), position, heads(out), lse, visited}, store);
    };
    const double f = median_seconds(repeat_, forward);
    const double b = median_seconds(repeat_, [&] {
      attention_backward(*context_, shape, options,
                         {heads(qkv), heads(qkv, 1), heads(qkv, 2), length, position, heads(out), lse, visited},
                         {.d_out = heads(d_out),
                          .d_q = heads(d_qkv),
                          .d_k = heads(d_qkv, 1),
                          .d_v = heads(d_qkv, 2),
                          .d_bias = d_bias});
    });
    const double flops = 2.0 * static_cast<double>(length) * static_cast<double>(length) * static_cast<double>(width);
    fmt::print("{:>6} {:>6} {:>8} {:>12.1f} {:>12.1f}\n", dim, length, kind, share(flops, f), share(3 * flops, f + b));
    json_out_["attention"].push_back({{"head_dim", dim},
                                      {"length", length},
                                      {"bias", kind},
                                      {"forward_percent", share(flops, f)},
                                      {"both_percent", share(3 * flops, f + b)}});
  }

  void save_weights(Transformer& model) const {
    std::vector<NamedTensor> tensors;
    for (size_t i = 0; i < model.parameters().tensors().size(); ++i) {
      const Tensor& t = model.parameters().tensors()[i];
      tensors.push_back({t.name, DType::kF32, t.shape, std::as_bytes(model.parameters().value(i))});
    }
    write_safetensors(weights_, tensors);
  }

  ModelConfig with_position(const std::string& position) const {
    ModelConfig config = model_;
    config.position = position;
    return config;
  }

  void bench_step() {
    TrainingStep step(*context_, model_, batch_tokens_, seed_);
    if (!weights_.empty()) save_weights(step.model);
    const double first_loss = step.run();
    context_->zones = {};
    const double seconds = median_seconds(repeat_, [&] { step.run(); });
    const Zones zones = context_->zones;
    const double calls = repeat_ + 1, rate = static_cast<double>(step.tokens()) / seconds;
    fmt::print("\ntraining step: {} layers, dim {}, {} heads, ffn {}, vocabulary {}, length {}, {} tokens, {}\n",
               model_.layers, model_.dim, model_.heads, model_.ffn_dim(), model_.vocab, model_.length, step.tokens(),
               model_.position);
    fmt::print("  {:.4f} s, {:.0f} tokens/s, {:.1f}% of peak, {} allocated\n", seconds, rate,
               share(step.flops(), seconds), bytes_text(static_cast<double>(step.bytes())));
    Json breakdown;
    double rest = seconds;
    for (size_t z = 0; z < kZoneCount; ++z) {
      const double part = zones[z] / calls;
      rest -= part;
      fmt::print("  {:<20} {:>6.1f}%\n", kZoneNames[z], 100 * part / seconds);
      breakdown[kZoneNames[z]] = part / seconds;
    }
    fmt::print("  {:<20} {:>6.1f}%\n", "row-wise, the rest", 100 * rest / seconds);
    breakdown["rest"] = rest / seconds;
    json_out_["step"].push_back({{"position", model_.position},
                                 {"length", model_.length},
                                 {"seconds", seconds},
                                 {"tokens_per_second", rate},
                                 {"percent_of_peak", share(step.flops(), seconds)},
                                 {"memory_bytes", step.bytes()},
                                 {"peak_memory_bytes", peak_memory_bytes()},
                                 {"first_loss", first_loss},
                                 {"breakdown", breakdown}});
  }

  // A step of each method right after a step without positions, and the median of the ratios: drift of the machine
  // falls on both alike. Half the batch, twice the pairs.
  void bench_positions() {
    const int64_t tokens = std::max(batch_tokens_ / 2, model_.length);
    fmt::print("\ncost of position methods, training at length {} (beside none)\n{:>12} {:>12} {:>10} {:>12}\n",
               model_.length, "method", "tokens/s", "slower %", "memory");
    TrainingStep none(*context_, with_position("none"), tokens, seed_);
    for (const char* position : {"alibi", "sinusoidal", "rotary", "t5"}) {
      TrainingStep step(*context_, with_position(position), tokens, seed_);
      none.run(), step.run();
      std::vector<double> seconds, ratios;
      for (int round = 0; round < 2 * repeat_; ++round) {
        const double base = seconds_of([&] { none.run(); });
        seconds.push_back(seconds_of([&] { step.run(); }));
        ratios.push_back(seconds.back() / base);
      }
      const double slower = 100 * (median(ratios) - 1);
      fmt::print("{:>12} {:>12.0f} {:>10.1f} {:>12}\n", position, static_cast<double>(step.tokens()) / median(seconds),
                 slower, bytes_text(static_cast<double>(step.bytes())));
      std::fflush(stdout);
      json_out_["positions"].push_back(
          {{"position", position}, {"slower_percent", slower}, {"memory_bytes", step.bytes()}});
    }
  }

  void bench_eval() {
    fmt::print("\nevaluation, every token scored\n{:>8} {:>12} {:>10} {:>12} {:>10}\n", "length", "tokens/s", "% peak",
               "memory", "tiles %");
    Transformer model(model_, false);
    model.initialize(*context_, seed_);
    for (const int64_t length : eval_lengths_) {
      Inference inference(*context_, model, {.sequences = 1, .tokens = length});
      const std::vector<int32_t> inputs = random_tokens(length, model_.vocab, seed_, 0),
                                 targets = random_tokens(length, model_.vocab, seed_, 1);
      std::vector<float> losses(static_cast<size_t>(length));
      const double seconds = median_seconds(std::min(repeat_, 3), [&] {
        inference.score({.inputs = inputs, .length = length, .first_key = {}}, targets, 0, losses);
      });
      const double rate = static_cast<double>(length) / seconds;
      const double tiles =
          100.0 * static_cast<double>(inference.visited().seen) / static_cast<double>(inference.visited().all);
      fmt::print("{:>8} {:>12.0f} {:>10.1f} {:>12} {:>10.1f}\n", length, rate,
                 share(training_flops_per_token(model, length) / 3 * static_cast<double>(length), seconds),
                 bytes_text(static_cast<double>(inference.bytes())), tiles);
      std::fflush(stdout);
      const double loss = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(length);
      json_out_["eval"].push_back({{"length", length},
                                   {"tokens_per_second", rate},
                                   {"first_loss", loss},
                                   {"peak_memory_bytes", peak_memory_bytes()},
                                   {"memory_bytes", inference.bytes()},
                                   {"tiles_percent", tiles}});
    }
  }

  static constexpr size_t kZoneCount = static_cast<size_t>(Zone::kCount);
  std::vector<std::string> what_ = {"machine", "gemm", "rows", "attention", "step", "positions", "eval"};
  std::vector<int64_t> eval_lengths_ = {512, 2048, 8192, 16384}, attention_lengths_ = {512, 2048, 8192};
  int64_t batch_tokens_ = 2048;
  int repeat_ = 5, threads_ = 0;
  std::optional<Context> context_;
  uint64_t seed_ = 1;
  std::string json_, weights_;
  ModelConfig model_;
  double peak_ = 0;
  Json json_out_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace longshot
