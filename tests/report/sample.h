// Results as a comparison of four methods would leave them, with made-up numbers in the shape of the paper's.
#pragma once
#include <cmath>

#include "run/results.h"

namespace longshot {

inline double sample_loss_at(const std::string& position, double t, double train_length, double wobble) {
  const double early = 1.85 + 1.4 / std::pow(t + 1, 0.7) + wobble;
  const double past = std::max(0.0, std::log2((t + 1) / train_length));
  if (position == "sinusoidal") return early + 0.03 + 0.34 * std::tanh(1.2 * past) + 0.03 * past;
  if (position == "rotary") return early - 0.05 + 0.16 * past * past / (1 + 0.2 * past);
  if (position == "t5") return early - 0.01 + 0.02 * past;
  return early - 0.002 * std::min(past, 2.0);
}

inline double sample_mean_loss(const std::string& position, int64_t length, int64_t train_length, double wobble) {
  double sum = 0;
  for (int64_t t = 0; t < length; ++t)
    sum += sample_loss_at(position, static_cast<double>(t), static_cast<double>(train_length), wobble);
  return sum / static_cast<double>(length);
}

inline EvalRecord sample_eval(WindowMode mode, int64_t length, int64_t stride, double loss, double speed) {
  return {.length = length,
          .mode = mode,
          .stride = stride,
          .tokens = 98304,
          .loss = loss,
          .standard_error = 0.004,
          .perplexity = std::exp(loss),
          .word_perplexity = std::exp(5.3 * loss),
          .bits_per_byte = loss / std::log(2.0),
          .tokens_per_second = speed,
          .peak_memory_bytes = 40'000'000 + 3000 * length};
}

inline std::optional<Biases> sample_biases(const std::string& position) {
  Biases biases{.heads = 8, .slopes = {}, .table = {}};
  if (position == "alibi") {
    for (int h = 1; h <= 8; ++h) biases.slopes.push_back(std::exp2(-h));
  } else if (position == "t5") {
    for (int h = 0; h < 8; ++h) {
      auto& row = biases.table.emplace_back();
      for (int d = 0; d < 128; ++d) row.push_back(std::sin(0.3 * h) - 0.2 * (h % 4) * std::log1p(d));
    }
  } else {
    return std::nullopt;
  }
  return biases;
}

inline void add_curve(RunRecord& run, double wobble) {
  for (int64_t step = 10; step <= 1000; step += 10) {
    MetricsRecord point{.step = step,
                        .tokens = step * 2048,
                        .seconds = static_cast<double>(step) * 2048 / *run.train_tokens_per_second,
                        .loss = {},
                        .valid_loss = {}};
    point.loss = 1.9 + wobble + 2.6 * std::exp(-static_cast<double>(step) / 180) +
                 0.02 * std::sin(static_cast<double>(step * (*run.seed + 3)));
    if (step % 100 == 0) point.valid_loss = *point.loss + 0.03;
    run.curve.push_back(point);
  }
}

inline RunRecord sample_run(const std::string& position, int64_t train_length, int64_t seed, double cost) {
  const double wobble =
      0.006 * static_cast<double>(seed) - 0.009 - 0.02 * std::log2(static_cast<double>(train_length) / 64);
  const double speed = 26000 / cost * (train_length > 64 ? 0.9 : 1.0);
  RunRecord run{.name = position + "-L" + std::to_string(train_length) + "-s" + std::to_string(seed),
                .position = position,
                .train_length = train_length,
                .seed = seed,
                .parameters = 823'000,
                .steps = 1000,
                .tokens = 2'048'000,
                .train_seconds = 2'048'000 / speed,
                .train_tokens_per_second = speed,
                .train_peak_memory_bytes =
                    static_cast<int64_t>((90e6 + 2e5 * static_cast<double>(train_length)) * (0.9 + 0.1 * cost)),
                .curve = {},
                .biases = sample_biases(position),
                .evals = {},
                .per_position = {},
                .decomposition = {}};
  add_curve(run, wobble);
  const auto add_speed = [&](SpeedWork work, int64_t length, double median) {
    run.speeds.push_back({.work = work,
                          .length = length,
                          .median = median,
                          .low = 0.99 * median,
                          .high = 1.01 * median,
                          .rounds = 3,
                          .other_load = 0.01});
  };
  add_speed(SpeedWork::kTraining, train_length, speed);
  for (int64_t length = train_length; length <= 2048; length *= 2) {
    add_speed(SpeedWork::kEvaluation, length, 3 * speed);
    const double mean = sample_mean_loss(position, length, train_length, wobble);
    const double base = sample_mean_loss(position, train_length, train_length, wobble);
    run.evals.push_back(sample_eval(WindowMode::kNonoverlapping, length, length, mean, speed * 3));
    const double last =
        sample_loss_at(position, static_cast<double>(length), static_cast<double>(train_length), wobble);
    if (length <= 1024) run.evals.push_back(sample_eval(WindowMode::kSliding, length, 32, last, speed * 0.4));
    if (length == train_length) continue;
    const double at_train =
        sample_loss_at(position, static_cast<double>(train_length), static_cast<double>(train_length), wobble);
    const double share = static_cast<double>(train_length) / static_cast<double>(length);
    const double relief = share * base - base + (1 - share) * at_train;
    run.decomposition.push_back(
        {.length = length, .total = mean - base, .curse_relief = relief, .beyond = mean - base - relief});
  }
  for (int64_t from = 0; from < 2048; from = from == 0 ? 1 : from * 2) {
    const int64_t to = from == 0 ? 1 : from * 2;
    const double middle = static_cast<double>(from + to) / 2;
    run.per_position.push_back({.from = from,
                                .to = to,
                                .tokens = 1000 * (to - from),
                                .loss = sample_loss_at(position, middle, static_cast<double>(train_length), wobble)});
  }
  return run;
}

inline Results sample_results() {
  Results results{
      .version = "0.1.0",
      .machine = {.cpu = "Test Processor 3000", .threads = 2, .memory_bytes = int64_t{8} << 30},
      .date = "2026-01-02T03:04:05Z",
      .command = "longshot compare --data kjv --positions alibi,sinusoidal,rotary,t5 --train-lengths 64,128",
      .config = "layers = 4\ndim = 128\nheads = 8\n",
      .data = {.name = "King James text", .tokenizer = "byte", .vocabulary = 256, .train_tokens = 4'200'000},
      .runs = {}};
  const std::pair<const char*, double> methods[] = {
      {"sinusoidal", 1.0}, {"alibi", 1.003}, {"rotary", 1.02}, {"t5", 1.04}};
  for (const auto& [position, cost] : methods)
    for (const int64_t length : {64, 128})
      for (const int64_t seed : {1, 2}) results.runs.push_back(sample_run(position, length, seed, cost));
  return results;
}

}  // namespace longshot
