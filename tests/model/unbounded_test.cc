// Streams without end: a cache that forgets, a window with sinks, slopes that follow the position.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "context.h"
#include "model/inference.h"
#include "model/norm_bounds.h"
#include "model/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

// Slopes that are steep enough for rings of a few hundred keys.
ModelConfig steep_config() {
  ModelConfig config = tiny_config("alibi");
  config.set("alibi-slopes", "0.5,0.25,0.35");
  return config;
}

PositionSettings running(const std::string& scaling, const std::string& factor = "1") {
  PositionSettings settings;
  Options options;
  settings.running_fields(options);
  options.set("alibi-scaling", scaling);
  options.set("alibi-scaling-factor", factor);
  return settings;
}

// ln p of every next token, [B, T, V], in one pass.
std::vector<float> whole_pass(Transformer& model, const RandomBatch& data) {
  const int64_t B = data.batch.sequences, T = data.batch.length, V = model.config().vocab;
  Inference whole(test_context(), model, {.sequences = B, .tokens = T});
  std::vector<float> out(static_cast<size_t>(B * T * V));
  whole.log_probabilities({.inputs = data.inputs, .length = T, .first_key = {}}, 0, {out.data(), B * T, V});
  return out;
}

// The next counts[b] tokens of each sequence of `data`, as far as there are any; returns ln p behind each, [B, most, V].
struct Fed {
  std::vector<int64_t> past, counts;
  int64_t length = 0;
  std::vector<float> log_p;
};
Fed feed(Inference& cached, const RandomBatch& data, std::vector<int64_t> counts, int64_t vocab) {
  const int64_t B = data.batch.sequences, T = data.batch.length;
  Fed fed;
  for (int64_t b = 0; b < B; ++b) {
    fed.past.push_back(cached.past(b));
    counts[static_cast<size_t>(b)] = std::min(counts[static_cast<size_t>(b)], T - fed.past.back());
  }
  fed.length = std::max<int64_t>(*std::max_element(counts.begin(), counts.end()), 1);
  std::vector<int32_t> inputs;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < fed.length; ++t) {
      const bool real = t < counts[static_cast<size_t>(b)];
      inputs.push_back(real ? data.inputs[static_cast<size_t>(b * T + fed.past[static_cast<size_t>(b)] + t)] : 1);
    }
  }
  fed.log_p.resize(static_cast<size_t>(B * fed.length * vocab));
  cached.log_probabilities({.inputs = inputs, .length = fed.length, .first_key = {}, .counts = counts}, 0,
                           {fed.log_p.data(), B * fed.length, vocab});
  fed.counts = std::move(counts);
  return fed;
}

void expect_whole(const Fed& fed, const std::vector<float>& want, int64_t length, int64_t vocab) {
  for (size_t b = 0; b < fed.counts.size(); ++b) {
    for (int64_t i = 0; i < fed.counts[b] * vocab; ++i) {
      const auto at = static_cast<size_t>((static_cast<int64_t>(b) * length + fed.past[b]) * vocab + i);
      ASSERT_NEAR(fed.log_p[b * static_cast<size_t>(fed.length * vocab) + static_cast<size_t>(i)], want[at], 3e-5)
          << "sequence " << b << " past " << fed.past[b];
    }
  }
}

TEST(Unbounded, ACacheThatForgotEqualsTheWholePass) {
  const ModelConfig config = steep_config();
  const auto model = tiny_model(config);
  for (const Inference::Forget forget : {Inference::Forget::kBySeen, Inference::Forget::kByWeights}) {
    const int64_t length = 2600;
    const RandomBatch data(1, length, config.vocab);
    const std::vector<float> want = whole_pass(*model, data);
    Inference cached(test_context(), *model,
                     {.sequences = 1, .tokens = 300, .capacity = Inference::kEndless, .forget = forget});
    const int64_t pieces[] = {1, 300, 7, 1, 64, 33};
    for (size_t i = 0; cached.past() < length; ++i) {
      expect_whole(feed(cached, data, {pieces[i % 6]}, config.vocab), want, length, config.vocab);
      if (testing::Test::HasFailure()) FAIL() << "past " << cached.past();
    }
    const ForgettingSummary forgotten = cached.forgotten();
    EXPECT_GT(forgotten.dropped, 1000) << "nothing was forgotten: the test shows nothing";
    EXPECT_LE(forgotten.left_out, 2 * config.attention_epsilon);
    EXPECT_GT(forgotten.left_out, 0);
    EXPECT_LT(forgotten.most_kept, 1600);
    const size_t bytes = cached.bytes();
    for (int i = 0; i < 3; ++i) {  // a sequence in its place: nothing of the one before is left
      cached.forget(0);
      EXPECT_EQ(cached.forgotten().dropped, 0);
      for (int64_t past = 0; past < length; past = cached.past()) {
        expect_whole(feed(cached, data, {300}, config.vocab), want, length, config.vocab);
      }
    }
    EXPECT_EQ(cached.bytes(), bytes);
  }
}

TEST(Unbounded, SequencesOfUnequalLengthForgetEachForItself) {
  const ModelConfig config = steep_config();
  const auto model = tiny_model(config);
  const int64_t length = 1200;
  for (const int64_t rows : {1, 2, 7, 16, 33}) {
    const RandomBatch data(rows, length, config.vocab);
    const std::vector<float> want = whole_pass(*model, data);
    Inference cached(
        test_context(), *model,
        {.sequences = rows, .tokens = 200, .capacity = Inference::kEndless, .forget = Inference::Forget::kBySeen});
    for (int64_t round = 0; cached.past(rows - 1) < length; ++round) {
      std::vector<int64_t> counts;
      for (int64_t b = 0; b < rows; ++b) counts.push_back((37 * (b + 1) + 61 * round) % 190 + (b + 1 == rows ? 10 : 0));
      expect_whole(feed(cached, data, counts, config.vocab), want, length, config.vocab);
      if (testing::Test::HasFailure()) FAIL() << rows << " rows";
    }
    EXPECT_GT(cached.forgotten().dropped, 0) << rows;
    EXPECT_LE(cached.forgotten().left_out, 2 * config.attention_epsilon);
  }
}

TEST(Unbounded, ARowHasTheBitsItHasAlone) {
  const ModelConfig config = steep_config();
  const auto model = tiny_model(config);
  const int64_t rows = 7, length = 900;
  const RandomBatch data(rows, length, config.vocab);
  const Inference::Config one{
      .sequences = 1, .tokens = 64, .capacity = Inference::kEndless, .forget = Inference::Forget::kBySeen};
  Inference::Config all = one;
  all.sequences = rows;
  Inference together(test_context(), *model, all);
  std::vector<std::vector<float>> last(static_cast<size_t>(rows));
  while (together.past(0) < length) {
    const int64_t step = together.past(0) < 832 ? 64 : 1;
    const Fed fed = feed(together, data, std::vector<int64_t>(rows, step), config.vocab);
    for (size_t b = 0; b < last.size(); ++b) {
      const auto end = fed.log_p.begin() + (static_cast<int64_t>(b) + 1) * fed.length * config.vocab;
      last[b].assign(end - config.vocab, end);
    }
  }
  EXPECT_GT(together.forgotten().dropped, 0);
  for (int64_t b = 0; b < rows; ++b) {
    RandomBatch single(1, length, config.vocab);
    single.inputs.assign(data.inputs.begin() + b * length, data.inputs.begin() + (b + 1) * length);
    Inference alone(test_context(), *model, one);
    Fed fed;
    while (alone.past() < length) fed = feed(alone, single, {alone.past() < 832 ? 64 : 1}, config.vocab);
    EXPECT_EQ(fed.log_p, last[static_cast<size_t>(b)]) << "row " << b;
  }
}

TEST(Unbounded, WhatCannotForgetIsRefused) {
  const auto refused = [](Transformer& model, Inference::Config config) {
    config.tokens = 10, config.capacity = Inference::kEndless;
    try {
      Inference(test_context(), model, config);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const Inference::Config forget{.forget = Inference::Forget::kBySeen}, sinks{.window = 20, .sinks = 4};
  const auto alibi = tiny_model(steep_config()), rotary = tiny_model(tiny_config("rotary"));
  EXPECT_EQ(refused(*alibi, forget), "");
  EXPECT_EQ(refused(*rotary, sinks), "");
  EXPECT_THAT(refused(*rotary, forget), HasSubstr("linear"));
  EXPECT_THAT(refused(*alibi, sinks), HasSubstr("sinks"));
  EXPECT_THAT(refused(*rotary, {.window = 3, .sinks = 4}), HasSubstr("sinks"));
  EXPECT_THAT(refused(*rotary, {}), HasSubstr("endless"));
  alibi->set_attention_epsilon(0);
  EXPECT_THAT(refused(*alibi, forget), HasSubstr("nothing may be left out"));
  alibi->set_attention_epsilon(1e-6);
  alibi->run_with(running("dynamic"));
  EXPECT_THAT(refused(*alibi, forget), HasSubstr("flatten"));
  alibi->run_with(running("ntk", "2"));
  EXPECT_EQ(refused(*alibi, forget), "");
}

// One layer: a token's keys depend on nothing but the token, and what it sees is the sinks and its window. With positions
// counted inside what is seen, that is a short sequence of its own.
TEST(Sinks, AreSeenAsIfNothingLayBetween) {
  for (const std::string name : {"none", "rotary", "t5"}) {
    SCOPED_TRACE(name);
    ModelConfig config = tiny_config(name);
    config.layers = 1;
    const auto model = tiny_model(config);
    const int64_t length = 500, window = 140, sinks = 5, V = config.vocab;
    const RandomBatch data(2, length, V);
    Inference cached(test_context(), *model,
                     {.sequences = 2, .tokens = 50, .capacity = Inference::kEndless, .window = window, .sinks = sinks});
    const std::vector<float> want = whole_pass(*model, data);
    Inference brief(test_context(), *model, {.sequences = 1, .tokens = window + sinks});
    const int64_t pieces[] = {3, 50, 1, 33};
    for (size_t i = 0; cached.past(0) < length; ++i) {
      const Fed fed = feed(cached, data, {pieces[i % 4], pieces[i % 4]}, V);
      for (int64_t b = 0; b < 2; ++b) {
        const int64_t p = fed.past[static_cast<size_t>(b)] + fed.counts[static_cast<size_t>(b)] - 1;
        const float* got = fed.log_p.data() + ((b + 1) * fed.length - 1) * V;
        std::vector<float> seen(static_cast<size_t>(V));
        if (p < window) {
          std::copy_n(want.begin() + (b * length + p) * V, V, seen.begin());
        } else if (p >= window + sinks) {
          const auto from = data.inputs.begin() + b * length;
          std::vector<int32_t> inputs(from, from + sinks);
          inputs.insert(inputs.end(), from + p - window + 1, from + p + 1);
          brief.log_probabilities({.inputs = inputs, .length = window + sinks, .first_key = {}}, window + sinks - 1,
                                  {seen.data(), 1, V});
        } else {
          continue;
        }
        for (int64_t c = 0; c < V; ++c) ASSERT_NEAR(got[c], seen[static_cast<size_t>(c)], 3e-5) << "at " << p;
      }
    }
  }
}

TEST(Sinks, AWindowThatHoldsAllIsTheWholePass) {
  for (const std::string& name : position_names()) {
    ModelConfig config = tiny_config(name);
    config.length = 260;
    const auto model = tiny_model(config);
    if (model->attention_options(0).bias.kind == DistanceBias::Kind::kLinear) continue;
    SCOPED_TRACE(name);
    const RandomBatch data(3, 200, config.vocab);
    const std::vector<float> want = whole_pass(*model, data);
    Inference cached(test_context(), *model,
                     {.sequences = 3, .tokens = 60, .capacity = 260, .window = 200, .sinks = 4});
    for (int64_t round = 0; cached.past(2) < 200; ++round) {
      expect_whole(feed(cached, data, {round * 13 % 60, round * 7 % 60, 20}, config.vocab), want, 200, config.vocab);
    }
  }
}

// q and k of random inputs of a block stay below the bounds, and power iteration comes near them.
TEST(NormBounds, HoldForEveryInputAndAreNear) {
  for (const std::string shape : {"pre layernorm", "pre rmsnorm", "post layernorm"}) {
    SCOPED_TRACE(shape);
    ModelConfig config = tiny_config("alibi");
    config.set("norm", shape.ends_with("rmsnorm") ? "rmsnorm" : "layernorm");
    config.set("norm-position", shape.starts_with("pre") ? "pre" : "post");
    const auto model = tiny_model(config);
    const auto bounds = norm_bounds(test_context(), *model);
    ASSERT_EQ(bounds.size(), 2u);
    Parameters& parameters = model->parameters();
    const auto tensor = [&](const std::string& name) -> std::span<const float> {
      for (size_t i = 0; i < parameters.tensors().size(); ++i)
        if (parameters.tensors()[i].name == name) return parameters.value(i);
      return {};
    };
    const bool pre = shape.starts_with("pre");
    const size_t C = 24, D = 8;
    for (size_t layer = pre ? 0 : 1; layer < 2; ++layer) {
      const std::string norm = pre ? fmt::format("layers.{}.attention_norm", layer) : "layers.0.ffn_norm";
      const auto gains = tensor(norm + ".weight"), shift = tensor(norm + ".bias");
      const auto weight = tensor(fmt::format("layers.{}.attention.qkv.weight", layer));
      const auto bias = tensor(fmt::format("layers.{}.attention.qkv.bias", layer));
      ASSERT_EQ(weight.size(), 3 * C * C);
      for (size_t h = 0; h < 3; ++h) {
        for (const size_t part : {0, 1}) {  // queries, keys
          const auto project = [&](const std::vector<double>& z) {
            std::vector<double> y(D);
            for (size_t d = 0; d < D; ++d) {
              const size_t row = part * C + h * D + d;
              y[d] = bias[row];
              for (size_t c = 0; c < C; ++c)
                y[d] += weight[row * C + c] * (gains[c] * z[c] + (shift.empty() ? 0.0 : double{shift[c]}));
            }
            return y;
          };
          const auto length = [](const std::vector<double>& x) {
            double sum = 0;
            for (const double v : x) sum += v * v;
            return std::sqrt(sum);
          };
          const NormBounds& bound = bounds[layer][h];
          const double most = part == 0 ? bound.query * std::sqrt(static_cast<double>(D)) : bound.key;
          std::vector<double> z(C);
          for (size_t c = 0; c < C; ++c) z[c] = normal(3, Stream::kTest, h, c);
          for (int step = 0; step < 300; ++step) {  // towards the largest: z <- M^T (M z + a), of length sqrt(C)
            const double factor = std::sqrt(static_cast<double>(C)) / length(z);
            for (double& v : z) v *= factor;
            const std::vector<double> y = project(z);
            ASSERT_LE(length(y), most) << "layer " << layer << " head " << h;
            std::vector<double> next(C);
            for (size_t c = 0; c < C; ++c)
              for (size_t d = 0; d < D; ++d) next[c] += gains[c] * weight[(part * C + h * D + d) * C + c] * y[d];
            z = next;
          }
          const double factor = std::sqrt(static_cast<double>(C)) / length(z);
          for (double& v : z) v *= factor;
          EXPECT_GE(length(project(z)), 0.85 * most) << "layer " << layer << " head " << h;
        }
      }
    }
  }
}

TEST(AlibiScaling, CachedEqualsFullAndBatchedSingle) {
  for (const auto& [scaling, factor] : {std::pair{"linear", "4"}, {"ntk", "4"}, {"dynamic", "1"}, {"dynamic", "2.5"}}) {
    SCOPED_TRACE(scaling);
    const ModelConfig config = tiny_config("alibi");
    const auto model = tiny_model(config);
    const RandomBatch data(3, 160, config.vocab);
    const std::vector<float> plain = whole_pass(*model, data);
    model->run_with(running(scaling, factor));
    const std::vector<float> want = whole_pass(*model, data);
    EXPECT_NE(want, plain);
    Inference cached(test_context(), *model, {.sequences = 3, .tokens = 60, .capacity = 260});
    for (int64_t round = 1; cached.past(2) < 160; ++round) {
      expect_whole(feed(cached, data, {round * 13 % 60, round * 7 % 60, 20}, config.vocab), want, 160, config.vocab);
    }
    model->run_with({});
    EXPECT_EQ(whole_pass(*model, data), plain) << "to the last bit";
  }
}

TEST(AlibiScaling, OfLearnedSlopesFollowsThem) {
  ModelConfig config = tiny_config("alibi");
  config.set("alibi-learned", "true");
  const auto model = tiny_model(config);
  model->run_with(running("linear", "4"));
  model->prepare_positions(10);
  const auto scaled = model->attention_options(0).bias.slopes;
  std::vector<float> own;
  for (size_t i = 0; i < model->parameters().tensors().size(); ++i) {
    if (model->parameters().tensors()[i].name != "position.slopes") continue;
    own.assign(model->parameters().value(i).begin(), model->parameters().value(i).end());
  }
  ASSERT_EQ(own.size(), 3u);
  for (size_t h = 0; h < 3; ++h) EXPECT_FLOAT_EQ(scaled[h], own[h] / 4);
}

}  // namespace
}  // namespace longshot
