// The reference's own checkpoints against what the reference computed with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/fairseq_model.h"
#include "formats/npy.h"
#include "model/inference.h"
#include "model/training.h"

namespace longshot {
namespace {

const fs::path kReference = fs::path(LONGSHOT_SOURCE_DIR) / "../shared/reference";

struct Loaded {
  Loaded(const std::string& name, const std::string& position, bool gradients = false)
      : file(kReference / "checkpoints" / name), checkpoint(file) {
    checkpoint.verify_ties();
    model = std::make_unique<Transformer>(model_config_of(checkpoint, position), gradients);
    load_weights(checkpoint, *model);
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
  const char* folder;
  const char* checkpoint;
  const char* position;
};

class Reference : public testing::TestWithParam<GoldenCase> {};

TEST_P(Reference, LogProbabilities) {
  if (!fs::exists(kReference)) GTEST_SKIP() << kReference << " is absent";
  const fs::path golden = kReference / "golden" / GetParam().folder;
  Loaded loaded(GetParam().checkpoint, GetParam().position);
  const std::vector<int32_t> inputs = ids(golden / "src_tokens.npy"), targets = ids(golden / "target.npy");
  const auto length = static_cast<int64_t>(inputs.size());
  Inference inference(*loaded.model, {.sequences = 1, .tokens = length});

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

INSTANTIATE_TEST_SUITE_P(Golden, Reference,
                         testing::Values(GoldenCase{"alibi_T48", "alibi_L64_h8_d128.pt", "alibi"},
                                         GoldenCase{"alibi_T200", "alibi_L64_h8_d128.pt", "alibi"},
                                         GoldenCase{"sinusoidal_T48", "sin_L64_h8_d128.pt", "sinusoidal"}));

}  // namespace
}  // namespace longshot
