// Generation and scoring: the cache changes nothing, nor do the samples beside one.
#include "generate/generator.h"

#include <gmock/gmock.h>

#include "generate/score.h"
#include "generate/support.h"
#include "generate/unbounded.h"
#include "model/inference.h"
#include "model/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

class GeneratorTest : public SmallModelTest {
 protected:
  static std::vector<int32_t> prompt(size_t bytes) {
    const std::string text = small_text(bytes);
    return {text.begin(), text.end()};
  }
  // ln p of every next token after the start id and `ids`, in one pass without a cache.
  static std::vector<float> full(LoadedModel& loaded, const std::vector<int32_t>& ids) {
    std::vector<int32_t> inputs{loaded.tokenizer->start_id()};
    inputs.insert(inputs.end(), ids.begin(), ids.end());
    const auto length = static_cast<int64_t>(inputs.size());
    Inference inference(test_context(), *loaded.model, {.sequences = 1, .tokens = length});
    std::vector<float> out(256);
    inference.log_probabilities({.inputs = inputs, .length = length, .first_key = {}}, length - 1,
                                {out.data(), 1, 256});
    return out;
  }
};

TEST_F(GeneratorTest, GreedyEqualsTheFullPassForEveryMethodPastTheTrainingLength) {
  for (const std::string& position : position_names()) {
    SCOPED_TRACE(position);
    LoadedModel& loaded = model(position);
    const int64_t reach = loaded.model->position().max_length();
    const int64_t made = std::min<int64_t>(40, reach - 11);
    GenerationConfig config{.sampling = {.temperature = 0}, .max_tokens = made};
    std::vector<int32_t> ids = prompt(10);
    const Generated generated = generate(test_context(), loaded, ids, config);
    const Sample& sample = generated.samples[0];
    ASSERT_EQ(static_cast<int64_t>(sample.ids.size()), made);
    for (size_t i = 0; i < sample.ids.size(); ++i) {
      const std::vector<float> log_p = full(loaded, ids);
      const float best = *std::ranges::max_element(log_p);
      EXPECT_NEAR(log_p[static_cast<size_t>(sample.ids[i])], best, 1e-4) << "at " << i;
      EXPECT_NEAR(sample.log_p[i], log_p[static_cast<size_t>(sample.ids[i])], 1e-4) << "at " << i;
      ids.push_back(sample.ids[i]);
    }
    EXPECT_EQ(sample.text, loaded.tokenizer->decode(sample.ids));
  }
}

TEST_F(GeneratorTest, ASampleDoesNotDependOnThoseBesideIt) {
  LoadedModel& loaded = model("alibi");
  GenerationConfig config{.max_tokens = 30, .samples = 7};
  const Generated many = generate(test_context(), loaded, prompt(20), config);
  for (size_t s = 0; s < 7; ++s) {
    GenerationConfig alone{.sampling = {.seed = 1 + s}, .max_tokens = 30};
    const Generated one = generate(test_context(), loaded, prompt(20), alone);
    EXPECT_EQ(one.samples[0].ids, many.samples[s].ids);
    EXPECT_EQ(one.samples[0].log_p, many.samples[s].log_p) << "to the last bit";
  }
  EXPECT_NE(many.samples[0].ids, many.samples[1].ids);
}

TEST_F(GeneratorTest, EndedSamplesStandStillBesideOthers) {
  LoadedModel& loaded = model("rotary");
  GenerationConfig config{.max_tokens = 60, .samples = 5, .stop = {"e"}};
  const Generated many = generate(test_context(), loaded, prompt(20), config);
  bool ended = false;
  for (size_t s = 0; s < 5; ++s) {
    GenerationConfig alone{.sampling = {.seed = 1 + s}, .max_tokens = 60, .stop = {"e"}};
    const Sample one = generate(test_context(), loaded, prompt(20), alone).samples[0];
    EXPECT_EQ(one.ids, many.samples[s].ids);
    EXPECT_EQ(one.text.find('e'), std::string::npos);
    ended |= one.ended == Ended::kStop && one.ids.size() < 60;
  }
  EXPECT_TRUE(ended) << "no sample ended early: the test shows nothing";
}

TEST_F(GeneratorTest, TheTextArrivesAsItIsMade) {
  LoadedModel& loaded = model("t5");
  GenerationCallbacks callbacks;
  std::string seen;
  int parts = 0;
  callbacks.on_text = [&](int64_t, const std::string& text) { seen += text, ++parts; };
  const Generated made = generate(test_context(), loaded, prompt(5), {.max_tokens = 40}, callbacks);
  EXPECT_EQ(seen, made.samples[0].text);
  EXPECT_GT(parts, 20);
  EXPECT_GT(made.first_seconds, 0);
  EXPECT_GE(made.seconds, made.first_seconds);
}

TEST_F(GeneratorTest, APromptInPiecesIsThePrompt) {
  LoadedModel& loaded = model("alibi");
  const std::vector<int32_t> ids = prompt(2500);  // several pieces
  const Generated made = generate(test_context(), loaded, ids, {.sampling = {.temperature = 0}, .max_tokens = 1});
  const std::vector<float> log_p = full(loaded, ids);
  EXPECT_NEAR(made.samples[0].log_p[0], *std::ranges::max_element(log_p), 1e-4);
}

TEST_F(GeneratorTest, TheWallOfLearnedPositionsIsNamed) {
  LoadedModel& loaded = model("learned");
  try {
    generate(test_context(), loaded, prompt(20), {.max_tokens = 10});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("'learned' is not defined beyond 24"));
  }
  EXPECT_THROW(score_text(test_context(), loaded, small_text(25)), Error);
  EXPECT_EQ(score_text(test_context(), loaded, small_text(24)).tokens.size(), 24u);
}

TEST_F(GeneratorTest, AModelWithoutATokenizerSaysSo) {
  LoadedModel& loaded = model("alibi");
  loaded.tokenizer.reset();
  const auto says = testing::ThrowsMessage<Error>(HasSubstr("no tokenizer travelled with this model"));
  EXPECT_THAT([&] { generate(test_context(), loaded, prompt(3), {.max_tokens = 1}); }, says);
  EXPECT_THAT([&] { generate_unbounded(test_context(), loaded, {.prompt = prompt(3)}, {}); }, says);
  EXPECT_THAT([&] { score_text(test_context(), loaded, "text"); }, says);
  EXPECT_THAT([&] { score_unbounded(test_context(), loaded, [](std::span<char>) { return 0; }, {}); }, says);
}

TEST_F(GeneratorTest, ScoresAreThoseOfTheFullPass) {
  LoadedModel& loaded = model("alibi");
  const std::string text = small_text(60);
  const ScoredText scored = score_text(test_context(), loaded, text);
  ASSERT_EQ(scored.tokens.size(), 60u);
  std::vector<int32_t> ids;
  std::string together;
  double sum = 0;
  for (const ScoredToken& t : scored.tokens) {
    EXPECT_NEAR(t.loss, -full(loaded, ids)[static_cast<size_t>(t.id)], 1e-4);
    ids.push_back(t.id);
    together += t.text;
    sum += t.loss;
  }
  EXPECT_EQ(together, text);
  EXPECT_NEAR(scored.loss(), sum / 60, 1e-9);
  EXPECT_NEAR(scored.bits_per_byte(), sum / 60 / std::log(2.0), 1e-9);
  EXPECT_THROW(score_text(test_context(), loaded, ""), Error);
  const ScoredText split = score_text(test_context(), loaded, "a\xC3\xA9\xC3");
  ASSERT_EQ(split.tokens.size(), 4u);
  EXPECT_EQ(split.tokens[1].text, "") << "half a character";
  EXPECT_EQ(split.tokens[2].text, "\xC3\xA9");
  EXPECT_EQ(split.tokens[3].text, "\xC3") << "nothing will finish it";
}

}  // namespace
}  // namespace longshot
