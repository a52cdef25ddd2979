// Blocks as other programs build them: against plain loops in double precision, and along every way a model runs.
#include <cmath>
#include <map>

#include "context.h"
#include "model/support.h"

namespace longshot {
namespace {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;

// The model by its formulas, for one sequence.
class PlainModel {
 public:
  explicit PlainModel(Transformer& model) : c_(model.config()) {
    for (size_t id = 0; id < model.parameters().tensors().size(); ++id) {
      const Tensor& t = model.parameters().tensors()[id];
      const auto values = model.parameters().value(id);
      tensors_[t.name] = Vector(values.begin(), values.end());
    }
  }

  // ln p of every next token.
  Rows log_probabilities(std::span<const int32_t> tokens) {
    const auto C = static_cast<size_t>(c_.dim);
    Rows x;
    for (size_t i = 0; i < tokens.size(); ++i) {
      Vector row(C);
      for (size_t k = 0; k < C; ++k) {
        row[k] = tensors_["embed.weight"][static_cast<size_t>(tokens[i]) * C + k] *
                 (c_.embed_scale ? std::sqrt(static_cast<double>(C)) : 1);
        if (c_.position == "learned") row[k] += tensors_["position.embedding"][i * C + k];
      }
      x.push_back(c_.embedding_norm ? norm(row, "embed_norm") : row);
    }
    for (int64_t layer = 0; layer < c_.layers; ++layer) x = block(x, fmt::format("layers.{}.", layer));
    for (Vector& row : x) {
      row = linear(norm(row, "final_norm"), c_.tied ? "embed" : "output");
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit);
      for (double& logit : row) logit -= std::log(sum);
    }
    return x;
  }

 private:
  Rows block(const Rows& x, const std::string& name) {
    Rows middle = attention(x, name), out;
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t k = 0; k < x[i].size(); ++k) middle[i][k] += x[i][k];
      const Vector hidden = linear(norm(c_.parallel_residual ? x[i] : middle[i], name + "ffn_norm"), name + "ffn.in");
      Vector active(static_cast<size_t>(c_.ffn_dim()));
      for (size_t k = 0; k < active.size(); ++k) active[k] = activate(hidden, k, active.size());
      out.push_back(linear(active, name + "ffn.out"));
      for (size_t k = 0; k < x[i].size(); ++k) out[i][k] += middle[i][k];
    }
    return out;
  }

  double activate(const Vector& h, size_t k, size_t width) const {
    const double x = h[k];
    switch (c_.activation) {
      case Activation::kRelu:
        return std::max(x, 0.0);
      case Activation::kGelu:
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      case Activation::kGeluExact:
        return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
      case Activation::kSwiglu:
        return x / (1 + std::exp(-x)) * h[width + k];
    }
    return 0;
  }

  Rows attention(const Rows& x, const std::string& name) {
    const auto C = static_cast<size_t>(c_.dim), D = static_cast<size_t>(c_.head_dim());
    const auto H = static_cast<size_t>(c_.heads), G = static_cast<size_t>(c_.key_heads());
    const double scale = c_.score_scale > 0 ? c_.score_scale : 1 / std::sqrt(static_cast<double>(D));
    Rows qkv, out;
    for (size_t i = 0; i < x.size(); ++i) {
      qkv.push_back(linear(norm(x[i], name + "attention_norm"), name + "attention.qkv"));
      for (double& v : qkv[i]) {
        if (c_.clip_qkv > 0) v = std::min(std::max(v, -c_.clip_qkv), c_.clip_qkv);
      }
      for (size_t h = 0; h < H + G && c_.position == "rotary"; ++h) turn(qkv[i].data() + h * D, static_cast<double>(i));
    }
    for (size_t i = 0; i < x.size(); ++i) {
      Vector mixed(C);
      for (size_t h = 0; h < H; ++h) {
        const size_t key = C + h / (H / G) * D, value = key + G * D;
        Vector p;
        double sum = 0;
        for (size_t j = 0; j <= i; ++j) {
          double s = 0;
          for (size_t d = 0; d < D; ++d) s += qkv[i][h * D + d] * qkv[j][key + d];
          const double slope = c_.position == "alibi" ? slopes()[h] : 0;
          p.push_back(std::exp(scale * s - slope * static_cast<double>(i - j)));
          sum += p.back();
        }
        for (size_t j = 0; j <= i; ++j) {
          for (size_t d = 0; d < D; ++d) mixed[h * D + d] += p[j] / sum * qkv[j][value + d];
        }
      }
      out.push_back(linear(mixed, name + "attention.out"));
    }
    return out;
  }

  void turn(double* v, double position) const {
    Options options;
    ModelConfig copy = c_;
    copy.fields(options);
    const bool half = options.at("rotary-style").get() == "half";
    const int64_t D = c_.head_dim();
    for (int64_t pair = 0; pair < D / 2; ++pair) {
      const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(D));
      double& a = v[half ? pair : 2 * pair];
      double& b = v[half ? pair + D / 2 : 2 * pair + 1];
      const double was = a;
      a = was * std::cos(angle) - b * std::sin(angle), b = was * std::sin(angle) + b * std::cos(angle);
    }
  }

  Vector slopes() const {
    const auto position = c_.make_position();
    const DistanceBias bias = position->bias(0);
    return {bias.slopes.begin(), bias.slopes.end()};
  }

  Vector norm(const Vector& x, const std::string& name) {
    const auto n = static_cast<double>(x.size());
    double mean = 0, squares = 0;
    for (const double v : x) mean += c_.norm == NormKind::kRmsNorm ? 0 : v / n;
    for (const double v : x) squares += (v - mean) * (v - mean) / n;
    Vector y;
    for (size_t k = 0; k < x.size(); ++k) {
      const double shift = tensors_.contains(name + ".bias") ? tensors_[name + ".bias"][k] : 0;
      y.push_back(tensors_[name + ".weight"][k] * (x[k] - mean) / std::sqrt(squares + c_.norm_epsilon) + shift);
    }
    return y;
  }

  Vector linear(const Vector& x, const std::string& name) {
    const Vector& w = tensors_[name + ".weight"];
    Vector y(w.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o) {
      y[o] = tensors_.contains(name + ".bias") ? tensors_[name + ".bias"][o] : 0;
      for (size_t k = 0; k < x.size(); ++k) y[o] += w[o * x.size() + k] * x[k];
    }
    return y;
  }

  ModelConfig c_;
  std::map<std::string, Vector> tensors_;
};

TEST(Forms, EqualPlainLoops) {
  for (const auto& [name, config] : foreign_forms()) {
    SCOPED_TRACE(name);
    const auto model = tiny_model(config);
    const RandomBatch data(1, config.length, config.vocab);
    const Rows want = PlainModel(*model).log_probabilities(data.inputs);
    Inference inference(test_context(), *model, {.sequences = 1, .tokens = config.length});
    std::vector<float> got(static_cast<size_t>(config.length * config.vocab));
    inference.log_probabilities({.inputs = data.inputs, .length = config.length, .first_key = {}}, 0,
                                {got.data(), config.length, config.vocab});
    for (size_t i = 0; i < got.size(); ++i) {
      const auto vocab = static_cast<size_t>(config.vocab);
      ASSERT_NEAR(got[i], want[i / vocab][i % vocab], 2e-5) << "token " << i / vocab;
    }
  }
}

// In the training pass, on top of a cache, behind context-only tokens, in a batch, on three threads.
TEST(Forms, EveryWayGivesTheSame) {
  for (const auto& [name, config] : foreign_forms()) {
    SCOPED_TRACE(name);
    const auto model = tiny_model(config);
    const RandomBatch data(2, 19, config.vocab);
    TrainingPass training(test_context(), *model, {.sequences = 2, .length = 19});
    training.run(data.batch, 0, 0);
    const std::vector<float> want(training.losses().begin(), training.losses().end());

    Context threads(3);
    Inference whole(threads, *model, {.sequences = 2, .tokens = 19});
    std::vector<float> losses(38), behind(10);
    whole.score({.inputs = data.inputs, .length = 19, .first_key = {}}, data.targets, 0, losses);
    const std::vector<int32_t> targets{data.targets[14], data.targets[15], data.targets[16], data.targets[17],
                                       data.targets[18], data.targets[33], data.targets[34], data.targets[35],
                                       data.targets[36], data.targets[37]};
    whole.score({.inputs = data.inputs, .length = 19, .first_key = {}}, targets, 14, behind);

    Inference cached(test_context(), *model, {.sequences = 2, .tokens = 12, .capacity = 19});
    std::vector<float> pieces(38);
    for (int64_t past = 0; past < 19;) {
      const int64_t step = past == 0 ? 12 : past == 12 ? 1 : 6;
      std::vector<int32_t> inputs, wanted;
      for (int64_t b = 0; b < 2; ++b) {
        inputs.insert(inputs.end(), data.inputs.begin() + b * 19 + past, data.inputs.begin() + b * 19 + past + step);
        wanted.insert(wanted.end(), data.targets.begin() + b * 19 + past, data.targets.begin() + b * 19 + past + step);
      }
      std::vector<float> part(inputs.size());
      cached.score({.inputs = inputs, .length = step, .first_key = {}}, wanted, 0, part);
      for (int64_t b = 0; b < 2; ++b) std::copy_n(part.begin() + b * step, step, pieces.begin() + b * 19 + past);
      past += step;
    }
    for (size_t i = 0; i < 38; ++i) {
      ASSERT_NEAR(losses[i], want[i], 1e-5);
      ASSERT_NEAR(pieces[i], want[i], 2e-5);
      if (i % 19 >= 14) {
        ASSERT_NEAR(behind[i / 19 * 5 + i % 19 - 14], want[i], 1e-5);
      }
    }
  }
}

// A stream that forgets keys, with heads that share them.
TEST(Forms, SharedKeysAreForgottenWhenNoHeadNeedsThem) {
  ModelConfig config = tiny_config();
  config.heads = 6, config.kv_heads = 2, config.score_scale = 0.3;
  config.set("alibi-slopes", "0.9,0.5,0.7,0.6,0.8,0.4");
  const auto model = tiny_model(config);
  const int64_t length = 1500;
  const RandomBatch data(1, length, config.vocab);
  Inference whole(test_context(), *model, {.sequences = 1, .tokens = length});
  std::vector<float> want(static_cast<size_t>(length));
  whole.score({.inputs = data.inputs, .length = length, .first_key = {}}, data.targets, 0, want);
  for (const Inference::Forget forget : {Inference::Forget::kBySeen, Inference::Forget::kByWeights}) {
    Inference cached(test_context(), *model,
                     {.sequences = 1, .tokens = 100, .capacity = Inference::kEndless, .forget = forget});
    for (int64_t past = 0; past < length; past += 100) {
      std::vector<float> got(100);
      const auto at = static_cast<size_t>(past);
      cached.score({.inputs = std::span(data.inputs).subspan(at, 100), .length = 100, .first_key = {}},
                   std::span(data.targets).subspan(at, 100), 0, got);
      for (size_t i = 0; i < 100; ++i) ASSERT_NEAR(got[i], want[at + i], 2e-5);
    }
    EXPECT_GT(cached.forgotten().dropped, 0);
    EXPECT_LE(cached.forgotten().left_out, 2 * config.attention_epsilon);
  }
}

TEST(Forms, WhatDoesNotFitIsNamed) {
  const auto refused = [](const char* option, const char* value, const char* also = nullptr) {
    ModelConfig c = tiny_config();
    if (also) c.set("norm-position", also);
    c.set(option, value);
    try {
      c.validate();
    } catch (const Error& e) {
      return std::string(e.what()).find(option) != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused("kv-heads", "2"));  // of 3
  EXPECT_TRUE(refused("kv-heads", "-1"));
  EXPECT_TRUE(refused("kv-heads", "6"));
  EXPECT_TRUE(refused("norm-epsilon", "0"));
  EXPECT_TRUE(refused("norm-epsilon", "nan"));
  EXPECT_TRUE(refused("clip-qkv", "-1"));
  EXPECT_TRUE(refused("clip-qkv", "inf"));
  EXPECT_TRUE(refused("score-scale", "-0.1"));
  EXPECT_TRUE(refused("score-scale", "nan"));
  EXPECT_TRUE(refused("parallel-residual", "true", "post"));
}

}  // namespace
}  // namespace longshot
