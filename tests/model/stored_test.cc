// Models whose matrices are stored for running: f32 and bf16 have the bits of floats, int8 is near, and a cache changes nothing.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "kernels/bf16.h"
#include "model/support.h"

namespace longshot {
namespace {

constexpr WeightType kTypes[] = {WeightType::kF32, WeightType::kBf16, WeightType::kInt8};

// The same numbers in a model without gradients, matrices rounded to bf16 where asked.
std::unique_ptr<Transformer> copy_of(Transformer& model, bool rounded = false) {
  auto copy = std::make_unique<Transformer>(model.config(), false);
  const std::vector<Tensor>& tensors = model.parameters().tensors();
  for (size_t id = 0; id < tensors.size(); ++id) {
    const auto from = model.parameters().value(id), to = copy->parameters().value(id);
    std::ranges::copy(from, to.begin());
    if (rounded && tensors[id].matrix) round_to_bf16(to.data(), to.data(), tensors[id].size);
  }
  return copy;
}

std::unique_ptr<Transformer> stored(Transformer& model, WeightType type) {
  auto copy = copy_of(model);
  copy->parameters().store_all(type);
  return copy;
}

std::vector<float> log_probabilities(Transformer& model, const RandomBatch& data) {
  const int64_t B = data.batch.sequences, T = data.batch.length, V = model.config().vocab;
  Inference whole(test_context(), model, {.sequences = B, .tokens = T});
  std::vector<float> out(static_cast<size_t>(B * T * V));
  whole.log_probabilities({.inputs = data.inputs, .length = T, .first_key = {}}, 0, {out.data(), B * T, V});
  return out;
}

// The last block makes no queries for tokens that are context only.
std::vector<float> last_losses(Transformer& model, const RandomBatch& data) {
  const int64_t B = data.batch.sequences, T = data.batch.length, scored = 5;
  Inference whole(test_context(), model, {.sequences = B, .tokens = T});
  std::vector<int32_t> targets(static_cast<size_t>(B * scored), 7);
  std::vector<float> losses(targets.size());
  whole.score({.inputs = data.inputs, .length = T, .first_key = {}}, targets, T - scored, losses);
  return losses;
}

ModelConfig wide_config() {
  ModelConfig c = tiny_config();
  c.dim = 48, c.ffn = 100;
  return c;
}
ModelConfig untied_config() {
  ModelConfig c = tiny_config();
  c.tied = false, c.activation = Activation::kSwiglu;
  return c;
}
ModelConfig adaptive_config() {
  ModelConfig c = tiny_config();
  c.vocab = 120, c.adaptive_cutoffs = {30, 70}, c.adaptive_factor = 2;
  return c;
}

TEST(StoredModel, HasTheBitsOfTheFloatsItStandsFor) {
  for (const ModelConfig& config : {tiny_config(), wide_config(), untied_config(), adaptive_config()}) {
    SCOPED_TRACE(testing::Message() << "dim " << config.dim << ", vocab " << config.vocab << ", tied " << config.tied);
    const auto model = tiny_model(config);
    const RandomBatch data(2, 19, config.vocab);
    EXPECT_EQ(log_probabilities(*stored(*model, WeightType::kF32), data), log_probabilities(*model, data));
    EXPECT_EQ(last_losses(*stored(*model, WeightType::kF32), data), last_losses(*model, data));
    const auto rounded = copy_of(*model, true);
    EXPECT_EQ(log_probabilities(*stored(*model, WeightType::kBf16), data), log_probabilities(*rounded, data));
    EXPECT_EQ(last_losses(*stored(*model, WeightType::kBf16), data), last_losses(*rounded, data));
    EXPECT_NE(log_probabilities(*rounded, data), log_probabilities(*model, data));
  }
}

// A weight is off by at most 2^-8 of the largest of 64 in int8; ln p of these models by some hundredths.
TEST(StoredModel, Int8IsNear) {
  for (const ModelConfig& config : {tiny_config(), wide_config(), untied_config(), adaptive_config()}) {
    const auto model = tiny_model(config);
    const RandomBatch data(2, 19, config.vocab);
    const std::vector<float> exact = log_probabilities(*model, data);
    const std::vector<float> near = log_probabilities(*stored(*model, WeightType::kInt8), data);
    double sum = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_NEAR(near[i], exact[i], 0.2) << i;
      sum += std::abs(near[i] - exact[i]);
    }
    EXPECT_LT(sum / static_cast<double>(exact.size()), 0.02);
    EXPECT_GT(sum, 0);
  }
}

// The last bits of attention differ between a cache and a whole pass. In int8 such a difference can take an input to the next
// 16-bit number, 2^-15 of the largest of 64, in each of the products of a layer and of the output.
TEST(StoredModel, CachedEqualsFull) {
  for (const std::string& name : position_names()) {
    ModelConfig config = tiny_config(name);
    config.length = 150;
    const auto model = tiny_model(config);
    const RandomBatch data(2, 150, config.vocab);
    for (const WeightType type : kTypes) {
      SCOPED_TRACE(testing::Message() << name << ", " << name_of(kWeightTypes, type));
      const double tolerance = type == WeightType::kInt8 ? 1e-3 : 2e-5;
      const auto run = stored(*model, type);
      const std::vector<float> want = log_probabilities(*run, data);
      Inference cached(test_context(), *run, {.sequences = 2, .tokens = 60, .capacity = 150});
      int64_t past = 0;
      for (const int64_t step : {1, 1, 7, 60, 1, 31, 48, 1}) {
        std::vector<int32_t> inputs;
        for (int64_t b = 0; b < 2; ++b) {
          const auto from = data.inputs.begin() + b * 150 + past;
          inputs.insert(inputs.end(), from, from + step);
        }
        std::vector<float> got(static_cast<size_t>(2 * step * 37));
        cached.log_probabilities({.inputs = inputs, .length = step, .first_key = {}}, 0, {got.data(), 2 * step, 37});
        for (int64_t b = 0; b < 2; ++b) {
          for (int64_t i = 0; i < step * 37; ++i)
            ASSERT_NEAR(got[static_cast<size_t>(b * step * 37 + i)],
                        want[static_cast<size_t>((b * 150 + past) * 37 + i)], tolerance);
        }
        past += step;
      }
    }
  }
}

// A sequence alone and among others: the same bits, whatever the type and the precision.
TEST(StoredModel, ASequenceHasItsOwnBits) {
  const auto model = tiny_model(tiny_config());
  const RandomBatch data(33, 8, 37);
  for (const WeightType type : kTypes) {
    const auto run = stored(*model, type);
    for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
      const PrecisionScope scope(test_context(), precision);
      const auto steps = [&](int64_t first, int64_t count) {  // [step, count, V]
        Inference cached(test_context(), *run, {.sequences = count, .tokens = 1, .capacity = 8});
        std::vector<float> all;
        for (int64_t t = 0; t < 8; ++t) {
          std::vector<int32_t> inputs;
          for (int64_t b = first; b < first + count; ++b) inputs.push_back(data.inputs[static_cast<size_t>(b * 8 + t)]);
          std::vector<float> out(static_cast<size_t>(count * 37));
          cached.log_probabilities({.inputs = inputs, .length = 1, .first_key = {}}, 0, {out.data(), count, 37});
          all.insert(all.end(), out.begin(), out.begin() + 37);  // of the first
        }
        return all;
      };
      const std::vector<float> alone = steps(0, 1);
      for (const int64_t count : {2, 7, 16, 33})
        EXPECT_EQ(steps(0, count), alone) << name_of(kWeightTypes, type) << count;
    }
  }
}

TEST(StoredModel, MemoryFalls) {
  ModelConfig config = tiny_config();
  config.dim = 128, config.heads = 4, config.ffn = 512, config.vocab = 1000;
  Transformer floats(config, false), halves(config, false), bytes(config, false);
  halves.parameters().store_all(WeightType::kBf16);
  bytes.parameters().store_all(WeightType::kInt8);
  const auto whole = static_cast<double>(floats.parameters().bytes());
  EXPECT_EQ(whole, 4.0 * static_cast<double>(floats.parameters().count()));
  EXPECT_NEAR(static_cast<double>(halves.parameters().bytes()) / whole, 0.5, 0.01);
  EXPECT_NEAR(static_cast<double>(bytes.parameters().bytes()) / whole, 0.25 * 68 / 64, 0.01);
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(StoredModel, RefusesWhatItCannotDo) {
  const auto trained = tiny_model(tiny_config());
  EXPECT_THAT(error_of([&] { trained->parameters().store_all(WeightType::kF32); }), testing::HasSubstr("trained"));
  const auto run = stored(*trained, WeightType::kInt8);
  EXPECT_THAT(error_of([&] { run->parameters().values(); }), testing::HasSubstr("stored as int8"));
  EXPECT_THAT(error_of([&] { run->parameters().store_all(WeightType::kF32); }), testing::HasSubstr("stored already"));
  for (const WeightType type : {WeightType::kBf16, WeightType::kInt8}) {
    const auto broken = copy_of(*trained);
    broken->parameters().value(0)[40] = NAN;
    EXPECT_THAT(error_of([&] { broken->parameters().store_all(type); }), testing::HasSubstr("embed.weight"));
  }
}

}  // namespace
}  // namespace longshot
