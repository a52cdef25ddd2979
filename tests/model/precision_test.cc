// Products of operands in bf16, over all position methods.
#include <cmath>

#include "model/support.h"

namespace longshot {
namespace {

struct Pass {
  std::vector<float> losses, gradients;
};
// Smooth everywhere: at ReLU's corner, or a limit's, a rounding can turn a derivative of 0 into 1.
ModelConfig smooth(ModelConfig config) {
  if (config.activation == Activation::kRelu) config.activation = Activation::kGelu;
  if (config.clip_qkv > 0) config.clip_qkv = 1000;
  return config;
}
ModelConfig smooth_config(const std::string& position) { return smooth(tiny_config(position)); }

Pass pass_in(Context& context, const ModelConfig& config) {
  const auto model = tiny_model(config);
  const RandomBatch data(3, 19, 37);
  TrainingPass pass(context, *model, {.sequences = 3, .length = 19});
  pass.run(data.batch, 1, 1);
  const auto grads = model->parameters().grads();
  return {{pass.losses().begin(), pass.losses().end()}, {grads.begin(), grads.end()}};
}

double norm(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * v;
  return std::sqrt(sum);
}

// A rounded operand is off by at most 2^-8 of itself, a product of two by 2^-7 of the sum of its absolute terms. On the way
// from the loss to a gradient of the first layer lie the output's product and, forward and backward, four of each layer:
// relative errors add, to first order.
void expect_explained_by_rounding(const ModelConfig& config) {
  const double bound = std::ldexp(4.0 * static_cast<double>(config.layers) + 1, -7);
  Context floats(2), halves(2);
  halves.set_precision(Precision::kBf16);
  const Pass exact = pass_in(floats, config), rounded = pass_in(halves, config);
  for (size_t i = 0; i < exact.losses.size(); ++i) EXPECT_NEAR(rounded.losses[i], exact.losses[i], bound);
  EXPECT_NE(rounded.losses, exact.losses);
  const auto model = tiny_model(config);
  for (const Tensor& t : model->parameters().tensors()) {
    const auto first = static_cast<size_t>(t.offset), count = static_cast<size_t>(t.size);
    std::vector<float> error(count);
    for (size_t i = 0; i < count; ++i) error[i] = rounded.gradients[first + i] - exact.gradients[first + i];
    const double size = norm(std::span(exact.gradients).subspan(first, count));
    EXPECT_LE(norm(error), bound * size + 1e-6) << t.name;
  }
}

TEST(Precision, GradientsAreOffByTheRoundingOfOperands) {
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    expect_explained_by_rounding(smooth_config(name));
  }
}

// What each of them keeps for its backward pass is stored in bf16.
TEST(Precision, GradientsOfEveryFormOfABlock) {
  for (const auto& [name, config] : foreign_forms()) {
    SCOPED_TRACE(name);
    expect_explained_by_rounding(smooth(config));
  }
  ModelConfig post = smooth_config("alibi");
  post.norm_position = NormPosition::kPost;
  expect_explained_by_rounding(post);
}

// Of all that is neither parameters, gradients nor moments, at the shapes of bench's step and of the demo.
TEST(Precision, AStepTakesAtMost65PercentOfTheMemory) {
  ModelConfig large;
  large.layers = 8, large.dim = 512, large.heads = 8, large.length = 512, large.vocab = 16384;
  ModelConfig demo;
  demo.layers = 4, demo.dim = 128, demo.heads = 8, demo.length = 64, demo.vocab = 256;
  for (const auto& [config, sequences] : {std::pair(large, 4), std::pair(demo, 16)}) {
    Transformer model(config, true, Transformer::Memory::kReserved);
    const std::vector<RowGroup> groups = halved(0, sequences, 3);
    const auto bytes = [&](Precision precision) {
      const PrecisionScope scope(test_context(), precision);
      return static_cast<double>(TrainingPass::predict_bytes(
          test_context(), model, {.sequences = sequences, .length = config.length, .groups = {{groups}}}));
    };
    EXPECT_LE(bytes(Precision::kBf16), 0.65 * bytes(Precision::kF32)) << config.dim;
  }
}

TEST(Precision, ThreadsChangeNothing) {
  Context one(1), two(2);
  one.set_precision(Precision::kBf16), two.set_precision(Precision::kBf16);
  for (const std::string& name : position_names()) {
    const Pass a = pass_in(one, smooth_config(name)), b = pass_in(two, smooth_config(name));
    for (size_t i = 0; i < a.losses.size(); ++i) ASSERT_NEAR(a.losses[i], b.losses[i], 1e-5) << name;
  }
}

// A row of a product has the same bits alone: what is cached is what would be computed again.
TEST(Precision, CachedEqualsFull) {
  Context context(2);
  context.set_precision(Precision::kBf16);
  for (const std::string& name : position_names()) {
    SCOPED_TRACE(name);
    ModelConfig config = tiny_config(name);
    config.length = 40;
    const auto model = tiny_model(config);
    const RandomBatch data(1, 40, config.vocab);
    const auto whole_size = static_cast<size_t>(40 * config.vocab);
    std::vector<float> want(whole_size), got(whole_size);
    Inference whole(context, *model, {.sequences = 1, .tokens = 40});
    whole.log_probabilities({.inputs = data.inputs, .length = 40, .first_key = {}}, 0, {want.data(), 40, config.vocab});
    Inference cached(context, *model, {.sequences = 1, .tokens = 17, .capacity = 40});
    int64_t past = 0;
    for (const int64_t step : {1, 17, 2, 16, 4}) {
      const std::vector<int32_t> inputs(data.inputs.begin() + past, data.inputs.begin() + past + step);
      cached.log_probabilities({.inputs = inputs, .length = step, .first_key = {}}, 0,
                               {got.data() + past * config.vocab, step, config.vocab});
      past += step;
    }
    for (size_t i = 0; i < whole_size; ++i) ASSERT_NEAR(got[i], want[i], 2e-2) << i;
  }
}

}  // namespace
}  // namespace longshot
