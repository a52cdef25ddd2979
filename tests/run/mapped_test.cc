// Weights of 16 bits that stay in their file: the same numbers as converted ones, without their memory.

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

#include "context.h"
#include "formats/dtype.h"
#include "model/inference.h"
#include "position/position.h"
#include "run/loaded_model.h"
#include "train/support.h"

namespace longshot {
namespace {

constexpr WeightStorage kMapped{.type = WeightType::kF32, .map_narrow = true};

void save_narrow(const fs::path& path, const ModelConfig& config, DType type) {
  Transformer model(config, false);
  model.initialize(test_context(), 3);
  std::vector<StreamedTensor> tensors;
  for (size_t id = 0; id < model.parameters().tensors().size(); ++id) {
    const Tensor& t = model.parameters().tensors()[id];
    tensors.push_back({t.name, type, t.shape, [&, id](const ByteSink& sink) {
                         for (const float value : model.parameters().value(id)) {
                           const uint16_t bits = type == DType::kF16 ? float_to_half(value) : float_to_bfloat(value);
                           sink(std::as_bytes(std::span(&bits, 1)));
                         }
                       }});
  }
  save_checkpoint(path, ImportedContent{.config = config, .weights = tensors});
}

std::vector<float> log_probabilities(Transformer& model, int64_t length) {
  std::vector<int32_t> ids(static_cast<size_t>(length));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 37 + 11) % 200);
  Inference inference(test_context(), model, {.sequences = 1, .tokens = length});
  std::vector<float> out(ids.size() * static_cast<size_t>(model.config().vocab));
  inference.log_probabilities({.inputs = ids, .length = length, .first_key = {}, .watch = {}}, 0,
                              {out.data(), length, model.config().vocab});
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

ModelConfig model_with(const std::string& position, bool tied) {
  ModelConfig config = small_model();
  config.position = position;
  config.tied = tied;
  return config;
}

TEST(MappedWeights, SameBitsAsFloatsForEveryPositionMethod) {
  for (const PositionMethod* method : position_methods()) {
    const std::string name = method->name;
    for (const DType type : {DType::kF16, DType::kBF16}) {
      const ScratchDir dir;
      const ModelConfig config = model_with(name, type == DType::kF16);
      save_narrow(dir / "step-00000000", config, type);
      const LoadedModel floats = load_model(dir / "step-00000000");
      const LoadedModel mapped = load_model(dir / "step-00000000", {}, kMapped);
      EXPECT_GT(mapped.model->parameters().mapped_bytes(), mapped.model->parameters().bytes());
      for (const int64_t length : {1, 7, 16}) {
        EXPECT_TRUE(same_bits(log_probabilities(*mapped.model, length), log_probabilities(*floats.model, length)))
            << name << ", length " << length;
      }
    }
  }
}

TEST(MappedWeights, OnlyMatricesOf16BitsAndWhereAskedFor) {
  const ScratchDir dir;
  const fs::path path = dir / "step-00000000";
  save_narrow(path, model_with("alibi", true), DType::kBF16);
  EXPECT_EQ(load_model(path, {}, WeightStorage{WeightType::kBf16}).model->parameters().mapped_bytes(), 0u);
  const LoadedModel mapped = load_model(path, {}, kMapped);
  const Parameters& parameters = mapped.model->parameters();
  size_t matrices = 0;
  for (const Tensor& t : parameters.tensors()) matrices += t.matrix ? static_cast<size_t>(t.size) : 0;
  EXPECT_EQ(parameters.mapped_bytes(), 2 * matrices);

  Transformer wide(model_with("alibi", true), false);
  wide.initialize(test_context(), 3);
  save_checkpoint(dir / "step-00000001", {.model = wide, .step = 1});
  EXPECT_EQ(load_model(dir / "step-00000001", {}, kMapped).model->parameters().mapped_bytes(), 0u);
}

TEST(MappedWeights, LiveOnWhenTheirFileIsRemoved) {
  const ScratchDir dir;
  const fs::path path = dir / "step-00000000";
  save_narrow(path, model_with("alibi", true), DType::kF16);
  const std::vector<float> before = log_probabilities(*load_model(path).model, 9);
  const LoadedModel mapped = load_model(path, {}, kMapped);
  fs::remove_all(path);
  EXPECT_TRUE(same_bits(log_probabilities(*mapped.model, 9), before));
}

// Memory that is the process's own, in bytes.
int64_t own_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

TEST(MappedWeights, TakeNoMemoryOfTheirOwn) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own";
#endif
  const ScratchDir dir;
  ModelConfig config = model_with("alibi", true);
  config.dim = 512, config.ffn = 2048, config.layers = 2, config.heads = 8;
  const fs::path path = dir / "step-00000000";
  save_narrow(path, config, DType::kBF16);
  const int64_t before = own_memory();
  const LoadedModel mapped = load_model(path, {}, kMapped);
  const int64_t grown = own_memory() - before;
  EXPECT_GT(mapped.model->parameters().mapped_bytes(), size_t{12} << 20);
  EXPECT_LT(grown, 3 << 20);
}

}  // namespace
}  // namespace longshot
