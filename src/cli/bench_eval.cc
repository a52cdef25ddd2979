// Evaluation: whole windows, and windows that move on by one token.
#include <cmath>
#include <numeric>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "model/inference.h"
#include "run/results.h"

namespace longshot {

void bench_eval(Bench& bench) {
  const BenchSettings& s = bench.settings;
  fmt::print("\nevaluation, every token scored\n{:>8} {:>12} {:>10} {:>12} {:>10}\n", "length", "tokens/s", "% peak",
             "memory", "tiles %");
  Transformer model(s.model, false);
  model.initialize(bench.context, s.seed);
  for (const int64_t length : s.eval_lengths) {
    Inference inference(bench.context, model, {.sequences = 1, .tokens = length});
    const std::vector<int32_t> inputs = random_tokens(length, s.model.vocab, s.seed, 0),
                               targets = random_tokens(length, s.model.vocab, s.seed, 1);
    std::vector<float> losses(static_cast<size_t>(length));
    const double seconds = median_seconds(
        2 * s.repeat,
        [&] { inference.score({.inputs = inputs, .length = length, .first_key = {}}, targets, 0, losses); }, 2.0);
    const double rate = static_cast<double>(length) / seconds;
    const double percent =
        bench.share(training_flops_per_token(model, length) / 3 * static_cast<double>(length), seconds);
    const double tiles =
        100.0 * static_cast<double>(inference.visited().seen) / static_cast<double>(inference.visited().all);
    fmt::print("{:>8} {:>12.0f} {:>10.1f} {:>12} {:>10.1f}\n", length, rate, percent,
               bytes_text(static_cast<double>(inference.bytes())), tiles);
    flush_output();
    const double loss = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(length);
    bench.out["eval"].push_back({{"length", length},
                                 {"tokens_per_second", rate},
                                 {"percent_of_peak", percent},
                                 {"first_loss", loss},
                                 {"peak_memory_bytes", peak_memory_bytes()},
                                 {"memory_bytes", inference.bytes()},
                                 {"tiles_percent", tiles}});
  }
}

namespace {

// Windows [b, b + length) of a stream, b = 0, 1, .., of which the last token is scored.
struct Windows {
  int64_t length, count;
  std::vector<int32_t> inputs, targets;  // [count, length], [count]

  Windows(int64_t length_, int64_t count_, const std::vector<int32_t>& stream) : length(length_), count(count_) {
    for (int64_t b = 0; b < count; ++b) {
      inputs.insert(inputs.end(), stream.begin() + b, stream.begin() + b + length);
      targets.push_back(stream[static_cast<size_t>(b + length)]);
    }
  }
};

}  // namespace

// The same windows with what overlaps computed once, and each on its own.
void bench_sliding(Bench& bench) {
  constexpr int64_t kBatchTokens = 8192;
  const BenchSettings& s = bench.settings;
  fmt::print("\nsliding windows, stride 1\n{:>8} {:>16} {:>16} {:>8} {:>12}\n", "window", "scored tokens/s",
             "each on its own", "ratio", "difference");
  Transformer model(s.model, false);
  model.initialize(bench.context, s.seed);
  for (const int64_t length : s.sliding_lengths) {
    const int64_t count = std::max<int64_t>(kBatchTokens / length, 1);
    const Windows windows(length, count, random_tokens(length + count, s.model.vocab, s.seed, 0));
    Inference inference(bench.context, model, {.sequences = count, .tokens = length});
    std::vector<float> shared(static_cast<size_t>(count)), apart(shared);
    const auto score = [&](int64_t shift, std::vector<float>& losses) {
      return seconds_of([&] {
        inference.score({.inputs = windows.inputs, .length = length, .first_key = {}, .shift = shift}, windows.targets,
                        length - 1, losses);
      });
    };
    score(1, shared);
    std::vector<double> times, ratios;
    for (int round = 0; round < std::min(s.repeat, 3); ++round) {
      const double alone = score(0, apart);
      times.push_back(score(1, shared));
      ratios.push_back(alone / times.back());
    }
    double difference = 0;
    for (size_t i = 0; i < shared.size(); ++i)
      difference = std::max(difference, static_cast<double>(std::abs(shared[i] - apart[i])));
    const double rate = static_cast<double>(count) / median(times), ratio = median(ratios);
    fmt::print("{:>8} {:>16.1f} {:>16.1f} {:>7.2f}x {:>12.1e}\n", length, rate, rate / ratio, ratio, difference);
    flush_output();
    bench.out["sliding"].push_back(
        {{"window", length}, {"tokens_per_second", rate}, {"times_alone", ratio}, {"largest_difference", difference}});
  }
}

}  // namespace longshot
