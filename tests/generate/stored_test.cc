// What fewer bits cost a trained model, and what the commands' own path makes of them.
#include <gmock/gmock.h>

#include <cmath>

#include "base/workspace.h"
#include "generate/generator.h"
#include "generate/score.h"
#include "train/support.h"

namespace longshot {
namespace {

class StoredRun : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<ScratchDir>();
    write_token_set(*dir_ / "data", 6000);
    TrainRequest request = small_request(*dir_ / "data", *dir_ / "run", 300);
    request.train.save_every = 300;
    trained(request);
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static double loss(std::optional<WeightStorage> storage) {
    LoadedModel loaded = load_model(*dir_ / "run", {}, storage);
    return score_text(test_context(), loaded, small_text(1500)).loss();
  }
  static std::unique_ptr<ScratchDir> dir_;
};
std::unique_ptr<ScratchDir> StoredRun::dir_;

TEST_F(StoredRun, PerplexityHardlyChanges) {
  const double floats = loss({});
  EXPECT_LT(floats, 1.5);  // it has learned: 5.5 is chance
  EXPECT_EQ(loss(WeightStorage{}), floats);
  const double bf16 = loss(WeightStorage{WeightType::kBf16}), int8 = loss(WeightStorage{WeightType::kInt8});
  EXPECT_NE(bf16, floats);
  EXPECT_NE(int8, floats);
  EXPECT_NEAR(bf16, floats, 0.005);
  EXPECT_NEAR(int8, floats, 0.005);
  RecordProperty("loss", fmt::format("f32 {:.5f} bf16 {:.5f} int8 {:.5f}", floats, bf16, int8));
}

TEST_F(StoredRun, TextIsTheSameAloneAndAmongOthers) {
  for (const auto& [name, type] : kWeightTypes) {
    LoadedModel loaded = load_model(*dir_ / "run", {}, WeightStorage{type});
    const std::vector<int32_t> prompt = {'T', 'h', 'e'};
    GenerationConfig config{.sampling = {.temperature = 1, .seed = 4}, .max_tokens = 40, .samples = 5};
    const Generated all = generate(test_context(), loaded, prompt, config);
    for (uint64_t s = 0; s < 5; ++s) {
      config.samples = 1, config.sampling.seed = 4 + s;
      EXPECT_EQ(generate(test_context(), loaded, prompt, config).samples[0].ids, all.samples[s].ids) << name << s;
    }
  }
}

}  // namespace
}  // namespace longshot
