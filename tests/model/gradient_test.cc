// Every layer, option and position method against finite differences.
#include <cmath>

#include "context.h"
#include "model/support.h"

namespace longshot {
namespace {

constexpr uint64_t kDropoutKey = 77;

class Checker {
 public:
  Checker(const ModelConfig& config, bool documents, bool recompute = false)
      : model_(tiny_model(config)),
        data_(2, config.length, config.vocab),
        pass_(test_context(), *model_, {.sequences = 2, .length = config.length, .recompute = recompute}) {
    data_.targets[5] = -1;  // not scored
    data_.batch.targets = data_.targets;
    if (documents) data_.batch.first_key = data_.first_key;
  }

  double loss() { return pass_.run(data_.batch, 0, kDropoutKey); }

  // Along a direction: half the gradient itself, half a random one, per tensor.
  void check() {
    Parameters& p = model_->parameters();
    std::fill(p.grads().begin(), p.grads().end(), 0.0f);
    pass_.run(data_.batch, 1, kDropoutKey);
    const std::vector<float> grads(p.grads().begin(), p.grads().end());
    for (size_t t = 0; t < p.tensors().size(); ++t) {
      const Tensor& tensor = p.tensors()[t];
      const auto values = p.value(t);
      const std::vector<float> saved(values.begin(), values.end());
      const float* g = grads.data() + tensor.offset;
      double norm = 0;
      for (int64_t i = 0; i < tensor.size; ++i) norm += static_cast<double>(g[i]) * g[i];
      norm = std::sqrt(norm);
      ASSERT_GT(norm, 1e-6) << tensor.name << " has no gradient";
      std::vector<double> direction;
      double length = 0, expected = 0;
      for (int64_t i = 0; i < tensor.size; ++i) {
        const double random =
            normal(9, Stream::kTest, t, static_cast<uint64_t>(i)) / std::sqrt(static_cast<double>(tensor.size));
        direction.push_back(g[i] / norm + random);
        length += direction.back() * direction.back();
      }
      length = std::sqrt(length);
      const auto at = [&](double h) {
        for (size_t i = 0; i < saved.size(); ++i) values[i] = static_cast<float>(saved[i] + h * direction[i] / length);
        return loss();
      };
      for (size_t i = 0; i < saved.size(); ++i) expected += g[i] * direction[i] / length;
      // Richardson's extrapolation of central differences.
      const double h = 4e-3;
      const double wide = (at(2 * h) - at(-2 * h)) / (4 * h), narrow = (at(h) - at(-h)) / (2 * h);
      const double measured = (4 * narrow - wide) / 3;
      at(0);
      EXPECT_NEAR(measured, expected, 4e-3 * norm + 5e-3) << tensor.name;
    }
  }

 private:
  std::unique_ptr<Transformer> model_;
  RandomBatch data_;
  TrainingPass pass_;
};

ModelConfig smooth(const std::string& position) {
  ModelConfig c = tiny_config(position);
  c.activation = Activation::kGelu;  // no kinks for finite differences to fall over
  return c;
}

TEST(Gradients, EveryPositionMethod) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    Checker(smooth(name), false).check();
  }
}

TEST(Gradients, EveryPositionMethodWithDropoutAndDocuments) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    ModelConfig c = smooth(name);
    c.dropout = 0.3, c.attention_dropout = 0.2, c.activation_dropout = 0.1, c.embedding_dropout = 0.1;
    Checker(c, true).check();
  }
}

TEST(Gradients, PositionOptions) {
  ModelConfig c = smooth("alibi");
  c.set("alibi-learned", "true");
  Checker(c, false).check();
  c = smooth("t5");
  c.set("t5-shared", "false");
  c.set("t5-buckets", "8");
  c.set("t5-max-distance", "12");
  Checker(c, false).check();
  c = smooth("rotary");
  c.set("rotary-style", "half");
  c.set("rotary-fraction", "0.5");
  Checker(c, false).check();
  c = smooth("sinusoidal");
  c.set("sinusoidal-variant", "vaswani");
  Checker(c, false).check();
}

TEST(Gradients, EveryModelOption) {
  for (const char* norm : {"layernorm", "rmsnorm"}) {
    for (const char* place : {"pre", "post"}) {
      for (const char* activation : {"gelu", "swiglu"}) {
        for (const bool flag : {false, true}) {
          SCOPED_TRACE(testing::Message() << norm << " " << place << " " << activation << " " << flag);
          ModelConfig c = tiny_config();
          c.set("norm", norm), c.set("norm-position", place), c.set("activation", activation);
          c.bias = flag, c.tied = !flag, c.final_norm = flag, c.embed_scale = !flag;
          Checker(c, false).check();
        }
      }
    }
  }
}

TEST(Gradients, FormsOfOtherPrograms) {
  for (auto& [name, config] : foreign_forms()) {
    SCOPED_TRACE(name);
    if (config.activation == Activation::kRelu) config.activation = Activation::kGelu;
    Checker(config, false).check();
    config.dropout = 0.3, config.attention_dropout = 0.2, config.embedding_dropout = 0.1;
    Checker(config, true, true).check();
  }
}

TEST(Gradients, AdaptiveInputAndSoftmax) {
  for (const double dropout : {0.0, 0.2}) {
    SCOPED_TRACE(dropout);
    ModelConfig c = smooth("alibi");
    c.adaptive_cutoffs = {9, 20};
    c.adaptive_factor = 2;
    c.adaptive_dropout = dropout;
    c.final_norm = false;
    Checker(c, false).check();
  }
}

TEST(Gradients, Relu) {
  ModelConfig c = tiny_config();
  c.activation_dropout = 0.2;
  Checker(c, false).check();
}

TEST(Gradients, RecomputedActivationsGiveTheSameBits) {
  ModelConfig c = tiny_config();
  c.dropout = 0.3, c.attention_dropout = 0.2;
  const auto model = tiny_model(c);
  const RandomBatch data(2, c.length, c.vocab);
  for (const auto& [name, precision] : kPrecisions) {
    const PrecisionScope scope(test_context(), precision);
    std::vector<std::vector<float>> grads;
    for (const bool recompute : {false, true}) {
      TrainingPass pass(test_context(), *model, {.sequences = 2, .length = c.length, .recompute = recompute});
      auto g = model->parameters().grads();
      std::fill(g.begin(), g.end(), 0.0f);
      pass.run(data.batch, 1, kDropoutKey);
      grads.emplace_back(g.begin(), g.end());
    }
    EXPECT_EQ(grads[0], grads[1]) << name;
  }
}

}  // namespace
}  // namespace longshot
