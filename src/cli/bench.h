// The parts of `longshot bench`, and what they share: settings, the machine's peak, clocks, a training step.
#pragma once
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/json.h"
#include "model/config.h"
#include "model/training.h"
#include "train/batch_plan.h"
#include "train/optimizer.h"

namespace longshot {

struct BenchSettings {
  ModelConfig model;
  int64_t batch_tokens = 2048;
  int repeat = 5;
  uint64_t seed = 1;
  std::vector<int64_t> eval_lengths = {512, 2048, 8192, 16384};
  std::vector<int64_t> attention_lengths = {512, 2048, 8192}, head_dims = {16, 32, 64, 128};
  std::vector<int64_t> sliding_lengths = {64, 128, 256, 512, 1024};
  std::vector<int64_t> decode_shape = {24, 1024, 16, 250880};  // BLOOM-560m's
  int64_t decode_prompt = 2000;                                // tokens
  std::vector<std::string> blas;                               // libraries to compare products with
  std::string weights;                                         // file for the initial weights of the training step
};

struct Bench {
  const BenchSettings& settings;
  Context& context;
  double peak = 0;  // flops a second of the FMA loop, measured right before a part
  Json out;         // what --json writes

  double share(double flops, double seconds) const { return 100 * flops / seconds / peak; }
};

// Each prints a table and adds its rows to bench.out.
void bench_machine(Bench& bench);
void bench_products(Bench& bench);
void bench_rows(Bench& bench);
void bench_attention(Bench& bench);
void bench_step(Bench& bench);
void bench_demo(Bench& bench);
void bench_shared(Bench& bench);
void bench_positions(Bench& bench);
void bench_eval(Bench& bench);
void bench_sliding(Bench& bench);
void bench_precision(Bench& bench);
void bench_decode(Bench& bench);
void bench_targets(Bench& bench);

template <class F>
double seconds_of(F&& f) {
  const double start = seconds_now();
  f();
  return seconds_now() - start;
}

double median(std::vector<double> values);

// Median time of `repeat` calls after one that warms up; once `budget` seconds are spent there are no more than three.
template <class F>
double median_seconds(int repeat, F&& f, double budget = std::numeric_limits<double>::infinity()) {
  std::vector<double> times;
  double spent = seconds_of(f);
  while (times.size() < static_cast<size_t>(repeat) && (spent < budget || times.size() < 3)) {
    times.push_back(seconds_of(f));
    spent += times.back();
  }
  return median(times);
}

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab, uint64_t seed, uint64_t offset);
std::vector<float> random_floats(int64_t n, uint64_t seed, uint64_t stream);  // in [-0.5, 0.5)

// The model of configs/demo.toml.
ModelConfig demo_model(int64_t length);

// A model and all that one update of it takes, summed as `train` does: forward, backward, optimizer.
class TrainingStep {
 public:
  TrainingStep(Context& context, const ModelConfig& config, int64_t batch_tokens, uint64_t seed);

  // Returns the mean loss before the update.
  double run();

  int64_t tokens() const { return sequences_ * length_; }
  double flops() const { return training_flops_per_token(model, length_) * static_cast<double>(tokens()); }
  size_t bytes() { return pass_.bytes() + model.parameters().values().size() * 16; }
  // Of what is neither parameters, gradients nor moments, once a step has run: activations, and the context's scratch.
  size_t working_bytes() { return pass_.bytes() + context_.scratch(0).size_bytes(); }
  Context& context() { return context_; }

  Transformer model;

 private:
  Context& context_;
  int64_t length_, sequences_;
  BatchPlan plan_;
  TrainingPass pass_;
  Optimizer optimizer_;
  std::vector<int32_t> inputs_, targets_;
};

// One head dimension, length and kind of bias ("none", "linear", "table"): forward and backward, in seconds and flops.
struct AttentionCase {
  int64_t heads, head_dim, length;
  std::string bias;
};
struct AttentionTimes {
  double forward, backward;  // seconds
  double flops;              // of the forward pass, causal work counted once; backward is twice that
};
AttentionTimes time_attention(const Bench& bench, const AttentionCase& attention);

// A product of a linear layer y = x W^T over so many rows, W[outputs, inputs], in one of its three forms.
enum class ProductForm { kForward, kInputGradient, kWeightGradient };
struct ProductCase {
  ProductForm form;
  int64_t rows, outputs, inputs;
  double flops() const { return 2.0 * static_cast<double>(rows * outputs) * static_cast<double>(inputs); }
};
// The matrices of a layer and of the output: qkv, attention's output, the two of the feed-forward part, the vocabulary's.
struct Matrix {
  int64_t outputs, inputs;
};
std::vector<Matrix> matrices_of(const ModelConfig& model);
double time_product(const Bench& bench, const ProductCase& product);  // seconds of a call

}  // namespace longshot
