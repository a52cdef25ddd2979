// Logits, loss, every gradient and ten training losses against PyTorch; tests/goldens/make_goldens.py made the files.
#include <cmath>
#include <nlohmann/json.hpp>

#include "context.h"
#include "formats/safetensors.h"
#include "model/support.h"
#include "train/optimizer.h"

namespace longshot {
namespace {

std::vector<float> floats(const Safetensors& file, const std::string& name) {
  std::vector<float> out(file.at(name).bytes.size() / 4);
  file.read(name, out);
  return out;
}

std::vector<int32_t> integers(const Safetensors& file, const std::string& name) {
  const NamedTensor& t = file.at(name);
  const size_t width = dtype_size(t.dtype);
  std::vector<int32_t> out;
  for (size_t at = 0; at < t.bytes.size(); at += width) {
    int64_t wide = 0;
    std::memcpy(&wide, t.bytes.data() + at, width);
    if (width == 4) wide = static_cast<int32_t>(wide);
    out.push_back(static_cast<int32_t>(wide));
  }
  return out;
}

class Golden {
 public:
  explicit Golden(const std::string& name)
      : file_(fs::path(LONGSHOT_SOURCE_DIR) / "tests/goldens" / (name + ".safetensors")) {
    const Json json = parse_json(file_.metadata().at("config"), name);
    const auto& shape = file_.at("ids").shape;
    batch_.sequences = shape[0], batch_.length = shape[1];
    inputs_ = integers(file_, "ids"), targets_ = integers(file_, "targets");
    batch_.inputs = inputs_, batch_.targets = targets_;
    ModelConfig c;
    c.layers = json["layers"], c.dim = json["dim"], c.heads = json["heads"], c.ffn = json["ffn"],
    c.vocab = json["vocab"];
    c.length = batch_.length;
    c.position = json["position"];
    c.norm = json["norm"] == "rms" ? NormKind::kRmsNorm : NormKind::kLayerNorm;
    c.set("norm-position", json["norm_position"]), c.set("activation", json["activation"]);
    c.bias = json["bias"], c.tied = json["tied"], c.final_norm = json["final_norm"],
    c.embed_scale = json["embed_scale"];
    model_ = std::make_unique<Transformer>(c, true);
    Parameters& p = model_->parameters();
    for (size_t t = 0; t < p.tensors().size(); ++t) file_.read(p.tensors()[t].name, p.value(t));
    for (const int32_t t : targets_) scored_ += t >= 0;
  }

  void check_forward_and_gradients() {
    const ModelConfig& c = model_->config();
    const int64_t rows = batch_.sequences * batch_.length;
    std::vector<float> got(static_cast<size_t>(rows * c.vocab));
    Inference(test_context(), *model_, {.sequences = batch_.sequences, .tokens = batch_.length})
        .log_probabilities({.inputs = batch_.inputs, .length = batch_.length, .first_key = {}}, 0,
                           {got.data(), rows, c.vocab});
    const std::vector<float> logits = floats(file_, "logits");
    for (int64_t r = 0; r < rows; ++r) {
      const float* want = logits.data() + r * c.vocab;
      double sum = 0;
      for (int64_t v = 0; v < c.vocab; ++v) sum += std::exp(static_cast<double>(want[v]));
      for (int64_t v = 0; v < c.vocab; ++v) {
        ASSERT_NEAR(got[static_cast<size_t>(r * c.vocab + v)], want[v] - std::log(sum), 2e-5)
            << "row " << r << " token " << v;
      }
    }
    TrainingPass pass(test_context(), *model_, {.sequences = batch_.sequences, .length = batch_.length});
    const double loss = pass.run(batch_, 1.0f / static_cast<float>(scored_), 0) / scored_;
    EXPECT_NEAR(loss, floats(file_, "losses")[0], 2e-6);
    Parameters& p = model_->parameters();
    double squares = 0;
    for (size_t t = 0; t < p.tensors().size(); ++t) {
      const auto grad = p.grad(t);
      const std::vector<float> want = floats(file_, "grad." + p.tensors()[t].name);
      ASSERT_EQ(grad.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(grad[i], want[i], 2e-6) << p.tensors()[t].name << " at " << i;
        squares += static_cast<double>(grad[i]) * grad[i];
      }
    }
    EXPECT_NEAR(std::sqrt(squares), floats(file_, "grad_norm")[0], 1e-5);
  }

  void check_training(const OptimizerConfig& config) {
    TrainingPass pass(test_context(), *model_, {.sequences = batch_.sequences, .length = batch_.length});
    Optimizer optimizer(config, model_->parameters());
    const std::vector<float> losses = floats(file_, "losses"), lrs = floats(file_, "lrs");
    for (size_t step = 0; step < losses.size(); ++step) {
      const double loss = pass.run(batch_, 1.0f / static_cast<float>(scored_), 0) / scored_;
      ASSERT_NEAR(loss, losses[step], 1e-5) << "step " << step;
      optimizer.step(test_context(), lrs[step]);
    }
    const Parameters& p = model_->parameters();
    for (size_t t = 0; t < p.tensors().size(); ++t) {
      const std::string& name = p.tensors()[t].name;
      const std::vector<float> want = floats(file_, "final." + name);
      const auto got = model_->parameters().value(t);
      // A key's bias moves all scores of a query alike: its true gradient is 0 and AdamW enlarges the rounding.
      const bool key_bias = name.ends_with("attention.qkv.bias") && model_->config().position != "rotary";
      for (size_t i = 0; i < want.size(); ++i) {
        if (key_bias && i / (want.size() / 3) == 1) continue;
        ASSERT_NEAR(got[i], want[i], 2e-5) << name << " at " << i;
      }
    }
  }

 private:
  Safetensors file_;
  TrainingBatch batch_;
  std::vector<int32_t> inputs_, targets_;
  std::unique_ptr<Transformer> model_;
  int scored_ = 0;
};

constexpr const char* kModels[] = {"alibi", "sinusoidal", "rotary", "t5", "rms_swiglu", "post_gelu"};

TEST(Golden, LogitsLossAndGradients) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    Golden(name).check_forward_and_gradients();
  }
}

TEST(Golden, TenTrainingLossesAndTheWeightsAfterThem) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    Golden(name).check_training({});
  }
}

TEST(Golden, NagIsFairseqs) {
  OptimizerConfig config;
  config.optimizer = OptimizerKind::kNag, config.momentum = 0.99, config.weight_decay = 0, config.clip = 0.1;
  Golden("nag").check_training(config);
}

}  // namespace
}  // namespace longshot
