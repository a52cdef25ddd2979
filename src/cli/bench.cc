// What this machine can do, and what share of it Longshot reaches. Ratios inside one run; nothing is asserted.
#include "cli/bench.h"

#include "base/error.h"
#include "base/rng.h"
#include "cli/command.h"
#include "kernels/peak.h"
#include "run/results.h"

namespace longshot {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab, uint64_t seed, uint64_t offset) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(random_bits(seed, Stream::kTest, static_cast<uint64_t>(i) + offset) %
                                          static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

std::vector<float> random_floats(int64_t n, uint64_t seed, uint64_t stream) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(uniform01(random_bits(seed, Stream::kTest, stream, i)) - 0.5);
  return values;
}

namespace {

struct Part {
  const char* name;
  void (*measure)(Bench&);
};
constexpr Part kParts[] = {{"machine", bench_machine},     {"gemm", bench_products},       {"rows", bench_rows},
                           {"attention", bench_attention}, {"step", bench_step},           {"demo", bench_demo},
                           {"positions", bench_positions}, {"eval", bench_eval},           {"sliding", bench_sliding},
                           {"shared", bench_shared},       {"precision", bench_precision}, {"decode", bench_decode},
                           {"targets", bench_targets}};

std::string part_names() {
  std::string names;
  for (const Part& part : kParts) names += (names.empty() ? "" : ", ") + std::string(part.name);
  return names;
}

const Part& part_named(const std::string& name) {
  const auto* found = std::ranges::find_if(kParts, [&](const Part& part) { return part.name == name; });
  if (found == std::end(kParts)) fail_usage("--what: '{}' is not a part; there are {}", name, part_names());
  return *found;
}

class BenchCommand : public Command {
 public:
  BenchCommand() {
    ModelConfig& model = settings_.model;
    model.layers = 8, model.dim = 512, model.heads = 8, model.length = 512, model.vocab = 16384;
    for (const Part& part : kParts) what_.emplace_back(part.name);
  }

  void options(Options& o) override {
    o.add("what", what_, "parts to measure: " + part_names());
    o.add("vocab", settings_.model.vocab, "vocabulary size");
    o.add("batch-tokens", settings_.batch_tokens, "tokens of a training step");
    o.add("eval-lengths", settings_.eval_lengths, "lengths to evaluate at");
    o.add("sliding-lengths", settings_.sliding_lengths, "lengths of windows that move on by one token");
    o.add("attention-lengths", settings_.attention_lengths, "lengths of the attention kernels' rows");
    o.add("head-dims", settings_.head_dims, "head dimensions of the attention kernels' rows");
    o.add("decode-shape", settings_.decode_shape, "layers, dim, heads and vocabulary of the model that makes text");
    o.add("decode-prompt", settings_.decode_prompt, "tokens of its prompt; 0: none");
    o.add("blas", settings_.blas, "libraries (files) with cblas_sgemm or dnnl_sgemm to compare products with");
    o.add("repeat", settings_.repeat, "repetitions; the median counts");
    o.add("seed", settings_.seed, "of weights and tokens");
    o.add("save-weights", settings_.weights, "write the initial weights of the training step to this safetensors file");
    o.add("json", json_, "write the measurements to this file");
    o.add("threads", threads_, "0: all cores");
    o.add("precision", precision_, kPrecisions, "of the numbers that are multiplied, in all parts but `precision`");
    settings_.model.fields(o);
  }

  int run() override {
    check();
    Context context(threads_);
    context.set_precision(precision_);
    Bench bench{.settings = settings_, .context = context, .peak = measure_peak_flops(context, 0.3), .out = {}};
    const Machine machine = this_machine(context.threads());
    bench.out = {{"cpu", machine.cpu},
                 {"threads", context.threads()},
                 {"instruction_set", instruction_set()},
                 {"peak_gflops", bench.peak / 1e9}};
    fmt::print("{}, {} threads, {}: peak {:.1f} GFLOP/s fp32\n", machine.cpu, context.threads(), instruction_set(),
               bench.peak / 1e9);
    std::vector<double> held;
    for (const std::string& name : what_) {
      const FmaRate rate = measure_fma_rate(context, 0.2);
      bench.peak = rate.peak;
      bench.out["peak_gflops_before"][name] = rate.peak / 1e9;
      held.push_back(100 * rate.mean / rate.peak);
      part_named(name).measure(bench);
      flush_output();
    }
    fmt::print("\nbefore these parts the FMA loop itself held {:.0f}% of its peak (median; lowest {:.0f}%)\n",
               median(held), *std::ranges::min_element(held));
    bench.out["fma_held_percent"] = held;
    if (!json_.empty()) write_json(json_, bench.out);
    return 0;
  }

 private:
  void check() {
    ModelConfig& model = settings_.model;
    model.validate();
    require_usage(settings_.batch_tokens >= model.length, "--batch-tokens ({}) must hold one sequence of --length {}",
                  settings_.batch_tokens, model.length);
    require_usage(settings_.repeat > 0, "--repeat must be positive, not {}", settings_.repeat);
    require_usage(!what_.empty(), "--what names no part to measure");
    for (const std::string& name : what_) part_named(name);
  }

  BenchSettings settings_;
  std::vector<std::string> what_;
  int threads_ = 0;
  Precision precision_ = Precision::kF32;
  std::string json_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace longshot
