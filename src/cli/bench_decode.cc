// Text as it is made: a token a step, one sequence and eight, with weights stored in every type; and what comes before it, the
// prompt.
#include <functional>

#include "base/error.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "generate/sampling.h"
#include "kernels/peak.h"
#include "model/inference.h"

namespace longshot {
namespace {

constexpr int64_t kTogether = 8;     // sequences
constexpr int64_t kPiece = 1024;     // tokens of a prompt that run at once, as in generate
constexpr int64_t kDecodeSteps = 8;  // tokens of one measurement

ModelConfig decoded_model(const BenchSettings& s) {
  require_usage(s.decode_shape.size() == 4, "--decode-shape: layers, dim, heads and vocabulary, not {} numbers",
                s.decode_shape.size());
  ModelConfig model;
  model.layers = s.decode_shape[0], model.dim = s.decode_shape[1], model.heads = s.decode_shape[2];
  model.vocab = s.decode_shape[3], model.length = 2048, model.position = "alibi";
  model.activation = Activation::kGelu, model.tied = true, model.embed_scale = false;
  model.validate();
  return model;
}

// Random matrices, whose numbers repeat: only their size counts here.
std::unique_ptr<Transformer> random_model(const BenchSettings& s, WeightType type) {
  constexpr int64_t kDistinct = 1 << 20;
  const std::vector<float> numbers = random_floats(kDistinct, s.seed, 1);
  auto model = std::make_unique<Transformer>(decoded_model(s), false);
  Parameters& parameters = model->parameters();
  parameters.begin_storing(type);
  for (size_t id = 0; id < parameters.tensors().size(); ++id) {
    const Tensor& t = parameters.tensors()[id];
    const std::span<float> values = parameters.value(id);
    for (int64_t i = 0; i < t.size; ++i) {
      values[static_cast<size_t>(i)] = t.matrix ? 0.1f * numbers[static_cast<size_t>(i % kDistinct)] : t.init(i, 0);
    }
    parameters.store(id);
  }
  return model;
}

// Sequences that go on together, a token a step, each drawn as `generate` draws it.
class Decoding {
 public:
  Decoding(Context& context, Transformer& model, int64_t sequences, int64_t capacity)
      : vocab_(model.config().vocab),
        inference_(context, model, {.sequences = sequences, .tokens = 1, .capacity = capacity}),
        ids_(static_cast<size_t>(sequences), 1),
        log_p_(static_cast<size_t>(sequences * vocab_)) {}

  // Seconds of a step, the median over some.
  double step_seconds() {
    inference_.forget();
    std::vector<double> times;
    for (int64_t i = 0; i < kDecodeSteps; ++i) times.push_back(seconds_of([&] { step(); }));
    return median(times);
  }

 private:
  void step() {
    const auto count = static_cast<int64_t>(ids_.size());
    inference_.log_probabilities({.inputs = ids_, .length = 1, .first_key = {}}, 0, {log_p_.data(), count, vocab_});
    for (size_t s = 0; s < ids_.size(); ++s) {
      const auto row = part(std::span<const float>(log_p_), static_cast<int64_t>(s) * vocab_, vocab_);
      ids_[s] = draw(candidates(row, {}, {}), 0.5);
    }
  }

  int64_t vocab_;
  Inference inference_;
  std::vector<int32_t> ids_;
  std::vector<float> log_p_;  // [sequences, vocabulary]
};

struct Contender {
  WeightType type;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<Decoding> one{}, several{};
  std::vector<double> seconds{}, shares{}, gains{}, together{};  // of a step; % of the read bandwidth; ratios

  const char* name() const { return name_of(kWeightTypes, type); }
  double bytes() const { return static_cast<double>(model->parameters().bytes()); }
};

std::vector<Contender> contenders(Bench& bench) {
  std::vector<Contender> all;
  for (const auto& [name, type] : kWeightTypes) {
    Contender s{.type = type, .model = random_model(bench.settings, type)};
    s.one = std::make_unique<Decoding>(bench.context, *s.model, 1, kDecodeSteps);
    s.several = std::make_unique<Decoding>(bench.context, *s.model, kTogether, kDecodeSteps);
    all.push_back(std::move(s));
  }
  return all;
}

// Everything in turn, so that ratios are of the same minute.
double measure_steps(Bench& bench, std::vector<Contender>& all) {
  std::vector<double> reads;
  for (int round = 0; round < bench.settings.repeat; ++round) {
    const double read = measure_read_bandwidth(bench.context);
    reads.push_back(read);
    for (Contender& s : all) {
      const double seconds = s.one->step_seconds(), beside = s.several->step_seconds();
      s.seconds.push_back(seconds);
      s.shares.push_back(100 * s.bytes() / seconds / read);
      s.gains.push_back(all[0].seconds.back() / seconds);
      s.together.push_back(static_cast<double>(kTogether) * seconds / beside);
    }
  }
  return median(reads);
}

void print_steps(Bench& bench, const std::vector<Contender>& all) {
  fmt::print("{:>6} {:>12} {:>10} {:>10} {:>10} {:>8} {:>14}\n", "", "weights", "tokens/s", "GB/s", "% of read",
             "x f32", "8 at once, x");
  for (const Contender& s : all) {
    const double seconds = median(s.seconds);
    fmt::print("{:>6} {:>12} {:>10.1f} {:>10.1f} {:>10.1f} {:>8.2f} {:>14.2f}\n", s.name(), bytes_text(s.bytes()),
               1 / seconds, s.bytes() / seconds / 1e9, median(s.shares), median(s.gains), median(s.together));
    bench.out["decode"].push_back({{"weights", s.name()},
                                   {"bytes", s.bytes()},
                                   {"tokens_per_second", 1 / seconds},
                                   {"percent_of_read", median(s.shares)},
                                   {"times_f32", median(s.gains)},
                                   {"eight_times_one", median(s.together)}});
  }
  flush_output();
}

struct PromptTimes {
  double prompt, evaluation;  // seconds
};

// A prompt up to the first token's distribution, and the same tokens scored.
PromptTimes time_prompt(Bench& bench, Transformer& model, int64_t length) {
  const int64_t vocab = model.config().vocab;
  const std::vector<int32_t> tokens = random_tokens(length + 1, vocab, bench.settings.seed, 0);
  const std::span<const int32_t> all(tokens);
  std::vector<float> log_p(static_cast<size_t>(vocab)), losses(static_cast<size_t>(length));
  Inference cached(bench.context, model, {.sequences = 1, .tokens = std::min(kPiece, length), .capacity = length}),
      whole(bench.context, model, {.sequences = 1, .tokens = length});
  const auto read = [&] {
    cached.forget();
    for (int64_t first = 0; first < length; first += kPiece) {
      const int64_t count = std::min(kPiece, length - first);
      cached.log_probabilities({.inputs = part(all, first, count), .length = count, .first_key = {}}, count - 1,
                               {log_p.data(), 1, vocab});
    }
  };
  const auto score = [&] {
    whole.score({.inputs = part(all, 0, length), .length = length, .first_key = {}}, part(all, 1, length), 0, losses);
  };
  const int rounds = std::min(bench.settings.repeat, 3);
  return {median_seconds(rounds, read, 1.0), median_seconds(rounds, score, 1.0)};
}

// Speeds in flops: a prompt needs the output of its last token only.
void bench_prompt(Bench& bench, std::vector<Contender>& all) {
  const int64_t length = bench.settings.decode_prompt;
  fmt::print("\na prompt of {} tokens\n{:>6} {:>16} {:>10} {:>10} {:>14} {:>10}\n", length, "", "first token, s",
             "tokens/s", "% peak", "scored, tok/s", "% peak");
  for (Contender& s : all) {
    const PromptTimes t = time_prompt(bench, *s.model, length);
    const auto tokens = static_cast<double>(length);
    const double flops = s.model->flops_per_token(length);
    const double without = flops - 2.0 * static_cast<double>(s.model->output().multiply_adds());
    const double prompt = bench.share(without * tokens, t.prompt), scored = bench.share(flops * tokens, t.evaluation);
    fmt::print("{:>6} {:>16.2f} {:>10.1f} {:>10.1f} {:>14.1f} {:>10.1f}\n", s.name(), t.prompt, tokens / t.prompt,
               prompt, tokens / t.evaluation, scored);
    flush_output();
    bench.out["prompt"].push_back({{"weights", s.name()},
                                   {"tokens", length},
                                   {"first_token_seconds", t.prompt},
                                   {"percent_of_peak", prompt},
                                   {"evaluation_tokens_per_second", tokens / t.evaluation},
                                   {"evaluation_percent_of_peak", scored}});
  }
}

}  // namespace

void bench_decode(Bench& bench) {
  std::vector<Contender> all = contenders(bench);
  const ModelConfig& model = all[0].model->config();
  const double read = measure_steps(bench, all);
  fmt::print("\ndecoding, {} layers, dim {}, vocabulary {}; memory read {:.1f} GB/s\n", model.layers, model.dim,
             model.vocab, read / 1e9);
  bench.out["decode_read_gb_per_second"] = read / 1e9;
  print_steps(bench, all);
  if (bench.settings.decode_prompt > 0) bench_prompt(bench, all);
}

}  // namespace longshot
