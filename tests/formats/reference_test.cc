// The reference's own checkpoints against what the reference computed with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "context.h"
#include "formats/fairseq_model.h"
#include "formats/npy.h"
#include "kernels/update.h"
#include "model/inference.h"
#include "model/training.h"
#include "references.h"

namespace longshot {
namespace {

struct Loaded {
  Loaded(const fs::path& path, const std::string& position, bool gradients = false) : file(path), checkpoint(file) {
    checkpoint.verify();
    model = std::make_unique<Transformer>(model_config_of(checkpoint, position), gradients);
    import_weights(checkpoint, *model);
  }
  TorchFile file;
  FairseqCheckpoint checkpoint;
  std::unique_ptr<Transformer> model;
};

std::vector<int32_t> ids(const fs::path& path) {
  std::vector<int32_t> out;
  for (const double v : read_npy(path).values) out.push_back(static_cast<int32_t>(v));
  return out;
}

struct GoldenCase {
  fs::path reference;
  std::string folder, checkpoint, position;
  fs::path golden() const { return reference / "golden" / folder; }
  fs::path file() const { return reference / "checkpoints" / checkpoint; }
};

void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.folder; }

class Reference : public testing::TestWithParam<GoldenCase> {};

TEST_P(Reference, LogProbabilities) {
  const fs::path golden = GetParam().golden();
  Loaded loaded(GetParam().file(), GetParam().position);
  const std::vector<int32_t> inputs = ids(golden / "src_tokens.npy"), targets = ids(golden / "target.npy");
  const auto length = static_cast<int64_t>(inputs.size());
  Inference inference(test_context(), *loaded.model, {.sequences = 1, .tokens = length});

  const NpyArray expected = read_npy(golden / "target_log_probs.npy");
  std::vector<float> losses(inputs.size());
  inference.score({inputs, length, {}}, targets, 0, losses);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(-losses[i], expected.values[i], 1e-4) << i;

  if (!fs::exists(golden / "log_probs.npy")) return;
  const NpyArray all = read_npy(golden / "log_probs.npy");
  const int64_t vocab = loaded.model->config().vocab;
  std::vector<float> memory(static_cast<size_t>(length * vocab));
  inference.log_probabilities({inputs, length, {}}, 0, Mat(memory.data(), length, vocab));
  ASSERT_EQ(all.values.size(), memory.size());
  double worst = 0;
  for (size_t i = 0; i < memory.size(); ++i) worst = std::max(worst, std::abs(memory[i] - all.values[i]));
  EXPECT_LT(worst, 1e-4);
}

// The reference's tensors that stand below each other in ours.
std::vector<std::string> reference_names(const std::string& name) {
  static const std::map<std::string, std::vector<std::string>> parts{
      {"attention_norm", {"self_attn_layer_norm"}},
      {"attention.qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
      {"attention.out", {"self_attn.out_proj"}},
      {"ffn_norm", {"final_layer_norm"}},
      {"ffn.in", {"fc1"}},
      {"ffn.out", {"fc2"}}};
  if (name == "output.clusters") return {"decoder.adaptive_softmax.head.class_proj.weight"};
  if (name.starts_with("embed.band")) {
    return {fmt::format("decoder.embed_tokens.embeddings.{}.{}.weight", name[10], name.ends_with("weight") ? 0 : 1)};
  }
  const size_t part = name.find('.', 7) + 1, last = name.rfind('.');  // layers.<i>.<part>.<weight or bias>
  std::vector<std::string> names;
  for (const std::string& p : parts.at(name.substr(part, last - part))) {
    names.push_back("decoder." + name.substr(0, part) + p + name.substr(last));
  }
  return names;
}

// |ours - expected| / |expected|, over a tensor of ours.
double relative_error(const std::map<std::string, NpyArray>& golden, const Tensor& tensor,
                      std::span<const float> ours) {
  double error = 0, norm = 0;
  size_t at = 0;
  for (const std::string& name : reference_names(tensor.name)) {
    for (const double expected : golden.at(name).values) {
      error += (ours[at] - expected) * (ours[at] - expected);
      norm += expected * expected;
      ++at;
    }
  }
  EXPECT_EQ(at, ours.size()) << tensor.name;
  return std::sqrt(error / norm);
}

class ReferenceTraining : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    loaded_ = std::make_unique<Loaded>(GetParam().file(), GetParam().position);
    ModelConfig config = loaded_->model->config();
    config.dropout = config.embedding_dropout = config.attention_dropout = config.activation_dropout = 0;
    config.adaptive_dropout = 0;
    config.adaptive_padding_rows = true;
    model_ = std::make_unique<Transformer>(config, true);
    import_weights(loaded_->checkpoint, *model_);
    inputs_ = ids(kGolden / "src_tokens.npy");
    targets_ = ids(kGolden / "target.npy");
    pass_ = std::make_unique<TrainingPass>(
        test_context(), *model_, TrainingPass::Config{.sequences = 1, .length = static_cast<int64_t>(inputs_.size())});
  }
  double run(float scale) {
    const auto length = static_cast<int64_t>(inputs_.size());
    return pass_->run({.sequences = 1, .length = length, .inputs = inputs_, .targets = targets_, .first_key = {}},
                      scale, 0);
  }

  const fs::path kGolden = GetParam().golden();
  std::unique_ptr<Loaded> loaded_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<TrainingPass> pass_;
  std::vector<int32_t> inputs_, targets_;
};

TEST_P(ReferenceTraining, GradientsOfEveryParameter) {
  const Json meta = read_json(kGolden / "meta.json");
  EXPECT_NEAR(run(1), meta["adaptive_loss_sum"].get<double>(), 1e-3);
  const auto golden = read_npz(kGolden / "grads_sumloss.npz");
  const auto& tensors = model_->parameters().tensors();
  for (size_t id = 0; id < tensors.size(); ++id) {
    EXPECT_LT(relative_error(golden, tensors[id], model_->parameters().grad(id)), 1e-4) << tensors[id].name;
  }
}

// Clipping to 0.1 and Nesterov steps with momentum 0.99, as the paper trains.
TEST_P(ReferenceTraining, ThreeStepsOfNag) {
  const Json meta = read_json(kGolden / "meta.json");
  Parameters& parameters = model_->parameters();
  std::vector<float> velocity(parameters.values().size(), 0.0f);
  float lr_before = 1;
  for (size_t step = 0; step < 3; ++step) {
    const auto lr = meta["nag_lrs"][step].get<float>();
    const auto count = static_cast<double>(inputs_.size());
    const double loss = run(static_cast<float>(1 / count)) / count;
    EXPECT_NEAR(loss, meta["nag_losses_nats_before_step"][step].get<double>(), 2e-5);
    const auto grads = parameters.grads();
    const double norm = std::sqrt(sum_of_squares(grads.data(), static_cast<int64_t>(grads.size())));
    EXPECT_NEAR(norm, meta["nag_gradnorms_before_clip"][step].get<double>(), 1e-4);
    nag_update({lr, 0.99f, lr / lr_before}, {.value = parameters.values().data(),
                                             .grad = grads.data(),
                                             .first = velocity.data(),
                                             .second = nullptr,
                                             .count = static_cast<int64_t>(grads.size()),
                                             .grad_scale = static_cast<float>(std::min(1.0, 0.1 / (norm + 1e-6))),
                                             .decay = 0});
    lr_before = lr;
  }
  const auto golden = read_npz(kGolden / "weights_after_3_nag.npz");
  const auto& tensors = parameters.tensors();
  for (size_t id = 0; id < tensors.size(); ++id) {
    EXPECT_LT(relative_error(golden, tensors[id], parameters.value(id)), 1e-5) << tensors[id].name;
  }
}

const GoldenCase kSmall{kFixtures, "alibi", "alibi.pt", "alibi"};
const GoldenCase kLarge{kLargeReference, "alibi_T48", "alibi_L64_h8_d128.pt", "alibi"};

INSTANTIATE_TEST_SUITE_P(Fixtures, Reference,
                         testing::Values(kSmall, GoldenCase{kFixtures, "alibi-long", "alibi.pt", "alibi"},
                                         GoldenCase{kFixtures, "sinusoidal", "sinusoidal.pt", "sinusoidal"}));
INSTANTIATE_TEST_SUITE_P(Large, Reference,
                         testing::ValuesIn(if_large<GoldenCase>(
                             {kLarge, GoldenCase{kLargeReference, "alibi_T200", "alibi_L64_h8_d128.pt", "alibi"},
                              GoldenCase{kLargeReference, "sinusoidal_T48", "sin_L64_h8_d128.pt", "sinusoidal"}})));
INSTANTIATE_TEST_SUITE_P(Fixtures, ReferenceTraining, testing::Values(kSmall));
INSTANTIATE_TEST_SUITE_P(Large, ReferenceTraining, testing::ValuesIn(if_large<GoldenCase>({kLarge})));

}  // namespace
}  // namespace longshot
