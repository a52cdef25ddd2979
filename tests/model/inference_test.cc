// One path, many ways to walk it: whole or in parts, alone or in a batch, on one thread or two.
#include "model/inference.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "context.h"
#include "model/support.h"

namespace longshot {
namespace {

// -ln p of each target, for every sequence, through the training pass.
std::vector<float> training_losses(Transformer& model, const RandomBatch& data) {
  TrainingPass pass(test_context(), model, {.sequences = data.batch.sequences, .length = data.batch.length});
  pass.run(data.batch, 0, 0);
  return {pass.losses().begin(), pass.losses().end()};
}

void expect_near(std::span<const float> got, std::span<const float> want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << "at " << i;
}

TEST(Inference, EqualsTheTrainingPass) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    const auto model = tiny_model(tiny_config(name));
    const RandomBatch data(3, 19, 37);
    Inference inference(test_context(), *model, {.sequences = 3, .tokens = 19});
    std::vector<float> losses(57);
    inference.score({.inputs = data.inputs, .length = 19, .first_key = {}}, data.targets, 0, losses);
    expect_near(losses, training_losses(*model, data), 1e-5f);
  }
}

TEST(Inference, CachedEqualsFull) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    ModelConfig config = tiny_config(name);
    config.length = 150;
    const auto model = tiny_model(config);
    const int64_t length = 150, vocab = config.vocab;
    const RandomBatch data(2, length, vocab);
    Inference whole(test_context(), *model, {.sequences = 2, .tokens = length});
    std::vector<float> want(static_cast<size_t>(2 * length * vocab));
    whole.log_probabilities({.inputs = data.inputs, .length = length, .first_key = {}}, 0,
                            {want.data(), 2 * length, vocab});

    Inference cached(test_context(), *model, {.sequences = 2, .tokens = 60, .capacity = length});
    int64_t past = 0;
    for (const int64_t step : {1, 1, 7, 60, 1, 31, 48, 1}) {
      std::vector<int32_t> inputs;
      for (int64_t b = 0; b < 2; ++b) {
        const auto from = data.inputs.begin() + b * length + past;
        inputs.insert(inputs.end(), from, from + step);
      }
      std::vector<float> got(static_cast<size_t>(2 * step * vocab));
      cached.log_probabilities({.inputs = inputs, .length = step, .first_key = {}}, 0, {got.data(), 2 * step, vocab});
      for (int64_t b = 0; b < 2; ++b) {
        expect_near(std::span(got).subspan(static_cast<size_t>(b * step * vocab), static_cast<size_t>(step * vocab)),
                    std::span(want).subspan(static_cast<size_t>((b * length + past) * vocab),
                                            static_cast<size_t>(step * vocab)),
                    2e-5f);
      }
      past += step;
    }
    EXPECT_EQ(past, length);
  }
}

// ln p of every next token of every position, [B, T, V], in one pass.
std::vector<float> whole_pass(Transformer& model, const RandomBatch& data, int64_t window = 0) {
  const int64_t B = data.batch.sequences, T = data.batch.length, V = model.config().vocab;
  Inference whole(test_context(), model, {.sequences = B, .tokens = T, .window = window});
  std::vector<float> out(static_cast<size_t>(B * T * V));
  whole.log_probabilities({.inputs = data.inputs, .length = T, .first_key = {}}, 0, {out.data(), B * T, V});
  return out;
}

// Feeds the next counts[b] tokens of each sequence to a cache and compares what follows them with the whole pass.
void feed(Inference& cached, const RandomBatch& data, std::span<const int64_t> counts, const std::vector<float>& want) {
  const int64_t B = data.batch.sequences, T = data.batch.length;
  const auto V = static_cast<int64_t>(want.size()) / (B * T);
  const int64_t length = *std::max_element(counts.begin(), counts.end());
  std::vector<int32_t> inputs;
  std::vector<int64_t> past;
  for (int64_t b = 0; b < B; ++b) {
    past.push_back(cached.past(b));
    for (int64_t t = 0; t < length; ++t) {
      const bool real = t < counts[static_cast<size_t>(b)];
      inputs.push_back(real ? data.inputs[static_cast<size_t>(b * T + past.back() + t)] : 1);
    }
  }
  std::vector<float> got(static_cast<size_t>(B * length * V));
  cached.log_probabilities({.inputs = inputs, .length = length, .first_key = {}, .counts = counts}, 0,
                           {got.data(), B * length, V});
  for (int64_t b = 0; b < B; ++b) {
    const int64_t count = counts[static_cast<size_t>(b)];
    EXPECT_EQ(cached.past(b), past[static_cast<size_t>(b)] + count);
    const auto size = static_cast<size_t>(count * V);
    expect_near(std::span(got).subspan(static_cast<size_t>(b * length * V), size),
                std::span(want).subspan(static_cast<size_t>((b * T + past[static_cast<size_t>(b)]) * V), size), 3e-5f);
  }
}

TEST(Inference, SequencesOfUnequalLengthGoOnTogether) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    ModelConfig config = tiny_config(name);
    config.length = 200;
    const auto model = tiny_model(config);
    const RandomBatch data(3, 160, config.vocab);
    const std::vector<float> want = whole_pass(*model, data);
    Inference cached(test_context(), *model, {.sequences = 3, .tokens = 60, .capacity = 200});
    const std::vector<std::vector<int64_t>> pieces = {{5, 60, 1}, {0, 60, 31}, {1, 1, 1},  {1, 1, 1},
                                                      {40, 3, 0}, {1, 1, 1},   {7, 0, 60}, {1, 1, 1}};
    for (const auto& counts : pieces) feed(cached, data, counts, want);
    // A place is taken by another sequence; the others go on.
    cached.forget(1);
    for (const auto& counts : pieces) feed(cached, data, {{1, counts[1], 2}}, want);
    cached.forget();
    feed(cached, data, {{3, 2, 1}}, want);
  }
}

TEST(Inference, AnEndlessStreamSeesItsWindow) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    ModelConfig config = tiny_config(name);
    config.length = 700;
    const auto model = tiny_model(config);
    const int64_t length = 700, window = 45;
    const bool bounded = model->position().max_length() < Inference::kEndless;
    const RandomBatch data(2, length, config.vocab);
    const std::vector<float> want = whole_pass(*model, data, window);
    Inference::Config endless{.sequences = 2, .tokens = 50, .capacity = Inference::kEndless, .window = window};
    if (bounded) {
      EXPECT_THROW(Inference(test_context(), *model, endless), Error);
      endless.capacity = length;
    }
    Inference cached(test_context(), *model, endless);  // rings of 256 tokens
    const int64_t pieces[] = {1, 50, 7, 1, 33};
    for (size_t i = 0; cached.past(0) < length; ++i) {
      const int64_t step = std::min(pieces[i % 5], length - cached.past(0));
      feed(cached, data, {{step, step}}, want);
      if (testing::Test::HasFailure()) FAIL() << "past " << cached.past(0);
    }
  }
  EXPECT_THROW(Inference(test_context(), *tiny_model(tiny_config()), {.tokens = 1, .capacity = Inference::kEndless}),
               Error);
}

TEST(Inference, AWindowIsAVisibleRange) {
  const auto model = tiny_model(tiny_config("rotary"));
  const RandomBatch data(2, 150, 37);
  std::vector<int32_t> first_key;
  for (int i = 0; i < 300; ++i) first_key.push_back(std::max(0, i % 150 - 19));
  Inference plain(test_context(), *model, {.sequences = 2, .tokens = 150});
  std::vector<float> want(static_cast<size_t>(300 * 37));
  plain.log_probabilities({.inputs = data.inputs, .length = 150, .first_key = first_key}, 0, {want.data(), 300, 37});
  expect_near(whole_pass(*model, data, 20), want, 0);
}

TEST(Inference, OverlappingSequencesShareWhatTheyCan) {
  for (const std::string& name : position_names()) {
    for (const int64_t layers : {1, 2}) {
      SCOPED_TRACE(testing::Message() << name << ", layers " << layers);
      ModelConfig config = tiny_config(name);
      config.layers = layers;
      const auto model = tiny_model(config);
      const RandomBatch stream(1, 19 + 3 * 5, 37);
      std::vector<int32_t> inputs, targets;
      for (int64_t b = 0; b < 4; ++b) {
        inputs.insert(inputs.end(), stream.inputs.begin() + 5 * b, stream.inputs.begin() + 5 * b + 19);
        targets.insert(targets.end(), stream.targets.begin() + 5 * b + 14, stream.targets.begin() + 5 * b + 19);
      }
      Inference inference(test_context(), *model, {.sequences = 4, .tokens = 19});
      std::vector<float> apart(20), shared(20);
      inference.score({.inputs = inputs, .length = 19, .first_key = {}}, targets, 14, apart);
      inference.score({.inputs = inputs, .length = 19, .first_key = {}, .shift = 5}, targets, 14, shared);
      expect_near(shared, apart, 1e-5f);
    }
  }
}

TEST(Inference, RunsPastTheTrainingLengthOrSaysWhyNot) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    const auto model = tiny_model(tiny_config(name));
    const RandomBatch data(1, 400, 37);
    if (model->position().max_length() < 400) {
      EXPECT_THROW(Inference(test_context(), *model, {.sequences = 1, .tokens = 400}), Error);
      continue;
    }
    Inference inference(test_context(), *model, {.sequences = 1, .tokens = 400});
    std::vector<float> losses(400), prefix(19);
    inference.score({.inputs = data.inputs, .length = 400, .first_key = {}}, data.targets, 0, losses);
    for (const float loss : losses) ASSERT_TRUE(std::isfinite(loss));
    // A causal model's first losses do not depend on what follows.
    Inference brief(test_context(), *model, {.sequences = 1, .tokens = 19});
    brief.score({.inputs = std::span(data.inputs).first(19), .length = 19, .first_key = {}},
                std::span(data.targets).first(19), 0, prefix);
    expect_near(std::span(losses).first(19), prefix, 1e-5f);
  }
}

TEST(Inference, BatchedEqualsSingle) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    const auto model = tiny_model(tiny_config(name));
    const RandomBatch data(4, 19, 37);
    Inference many(test_context(), *model, {.sequences = 4, .tokens = 19}),
        one(test_context(), *model, {.sequences = 1, .tokens = 19});
    std::vector<float> together(76), alone(19);
    many.score({.inputs = data.inputs, .length = 19, .first_key = {}}, data.targets, 0, together);
    for (size_t b = 0; b < 4; ++b) {
      one.score({.inputs = std::span(data.inputs).subspan(b * 19, 19), .length = 19, .first_key = {}},
                std::span(data.targets).subspan(b * 19, 19), 0, alone);
      expect_near(std::span(together).subspan(b * 19, 19), alone, 1e-5f);
    }
  }
}

TEST(Inference, ContextOnlyTokensChangeNothing) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    const auto model = tiny_model(tiny_config(name));
    const RandomBatch data(2, 19, 37);
    Inference inference(test_context(), *model, {.sequences = 2, .tokens = 19});
    std::vector<float> all(38);
    inference.score({.inputs = data.inputs, .length = 19, .first_key = {}}, data.targets, 0, all);
    for (const int64_t from : {1, 11, 18}) {
      std::vector<int32_t> targets;
      std::vector<float> want, got(static_cast<size_t>(2 * (19 - from)));
      for (int64_t b = 0; b < 2; ++b) {
        targets.insert(targets.end(), data.targets.begin() + b * 19 + from, data.targets.begin() + (b + 1) * 19);
        want.insert(want.end(), all.begin() + b * 19 + from, all.begin() + (b + 1) * 19);
      }
      inference.score({.inputs = data.inputs, .length = 19, .first_key = {}}, targets, from, got);
      expect_near(got, want, 1e-5f);
    }
  }
}

TEST(Inference, LongSequencesInChunksEqualOnePass) {
  ModelConfig config = tiny_config("rotary");
  config.layers = 1;
  const auto model = tiny_model(config);
  const int64_t length = 4500;  // two chunks when alone, one when doubled
  const RandomBatch data(1, length, 37);
  std::vector<int32_t> inputs = data.inputs, targets = data.targets;
  inputs.insert(inputs.end(), data.inputs.begin(), data.inputs.end());
  targets.insert(targets.end(), data.targets.begin(), data.targets.end());
  Inference one(test_context(), *model, {.sequences = 1, .tokens = length}),
      two(test_context(), *model, {.sequences = 2, .tokens = length});
  std::vector<float> a(static_cast<size_t>(length)), b(static_cast<size_t>(2 * length));
  one.score({.inputs = data.inputs, .length = length, .first_key = {}}, data.targets, 0, a);
  two.score({.inputs = inputs, .length = length, .first_key = {}}, targets, 0, b);
  expect_near(a, std::span(b).first(a.size()), 1e-5f);
}

TEST(Inference, ThreadsChangeNothingBeyondRounding) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    const auto model = tiny_model(tiny_config(name));
    const RandomBatch data(3, 19, 37);
    std::vector<std::vector<float>> losses, grads;
    for (const int count : {1, 2}) {
      Context context(count);
      auto g = model->parameters().grads();
      std::fill(g.begin(), g.end(), 0.0f);
      TrainingPass pass(context, *model, {.sequences = 3, .length = 19});
      pass.run(data.batch, 1, 1);
      losses.emplace_back(pass.losses().begin(), pass.losses().end());
      grads.emplace_back(g.begin(), g.end());
    }
    expect_near(losses[0], losses[1], 1e-5f);
    expect_near(grads[0], grads[1], 1e-4f);
  }
}

TEST(Inference, DocumentsAreIndependent) {
  const ModelConfig config = tiny_config("alibi");
  const auto model = tiny_model(config);
  const RandomBatch data(1, 19, 37);
  std::vector<int32_t> first_key(19, 0);
  std::fill(first_key.begin() + 8, first_key.end(), 8);
  Inference inference(test_context(), *model, {.sequences = 1, .tokens = 19});
  std::vector<float> masked(19), alone(11);
  inference.score({.inputs = data.inputs, .length = 19, .first_key = first_key}, data.targets, 0, masked);
  inference.score({.inputs = std::span(data.inputs).subspan(8), .length = 11, .first_key = {}},
                  std::span(data.targets).subspan(8), 0, alone);
  expect_near(std::span(masked).subspan(8), alone, 1e-5f);
}

}  // namespace
}  // namespace longshot
