// Streams without end: the same numbers as whole texts, in pieces of any size.
#include "generate/unbounded.h"

#include <gmock/gmock.h>

#include <cmath>

#include "generate/generator.h"
#include "generate/support.h"
#include "model/support.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class UnboundedTest : public SmallModelTest {
 protected:
  // As a pipe may give it; less than asked for only at the end.
  static TextReader reader(const std::string& text) {
    return [text, at = size_t{0}](std::span<char> out) mutable {
      const size_t count = std::min(out.size(), text.size() - at);
      std::copy_n(text.begin() + static_cast<int64_t>(at), count, out.begin());
      at += count;
      return count;
    };
  }
  static std::string steep(const ModelConfig& config) {
    std::string slopes = "0.5";
    for (int64_t h = 1; h < config.heads; ++h) slopes += ",0.25";
    return slopes;
  }
};

TEST_F(UnboundedTest, ScoresAreThoseOfTheWholeText) {
  LoadedModel& loaded = model("alibi", steep(small_model()));
  const std::string text = small_text(70000);  // more than is read at once
  const ScoredText whole = score_text(test_context(), loaded, text);
  std::vector<float> losses;
  std::string together;
  ScoreStreamCallbacks callbacks;
  callbacks.on_token = [&](int64_t index, const ScoredToken& t) {
    EXPECT_EQ(index, static_cast<int64_t>(losses.size()));
    losses.push_back(t.loss);
    together += t.text;
  };
  const ScoredStream stream = score_unbounded(test_context(), loaded, reader(text), {}, callbacks);
  ASSERT_EQ(losses.size(), whole.tokens.size());
  for (size_t i = 0; i < losses.size(); ++i) ASSERT_NEAR(losses[i], whole.tokens[i].loss, 1e-4) << i;
  EXPECT_EQ(together, text);
  EXPECT_NEAR(stream.loss, whole.loss(), 1e-6);
  EXPECT_NEAR(stream.bits_per_byte(), whole.bits_per_byte(), 1e-6);
  EXPECT_EQ(stream.bytes, 70000);
  EXPECT_TRUE(stream.unbounded.certified);
  EXPECT_GT(stream.unbounded.forgotten.dropped, 60000);
  EXPECT_LE(stream.unbounded.forgotten.left_out, 1.3e-7);
  EXPECT_THAT(stream.unbounded.text(), HasSubstr("of any token's attention was left out"));
  int64_t tokens = 0;
  for (const PositionLoss& p : stream.per_position) {
    EXPECT_EQ(p.from, tokens);
    tokens += p.tokens;
  }
  EXPECT_EQ(tokens, 70000);
}

TEST_F(UnboundedTest, TextIsWhatGenerateMakes) {
  for (const std::string& position : position_names()) {
    if (position == "learned") continue;
    SCOPED_TRACE(position);
    LoadedModel& loaded = model(position);
    const std::vector<int32_t> prompt = loaded.tokenizer->encode(small_text(800));
    const GenerationConfig config{.max_tokens = 30};
    const Sample whole = generate(test_context(), loaded, prompt, config).samples[0];
    std::vector<int32_t> ids;
    std::string text;
    TextRequest request{.prompt = prompt, .config = config};
    request.on_token = [&](const MadeToken& t) { ids.push_back(t.token.id), text += t.text; };
    request.on_end = [&](Ended, const std::string& held_back) { text += held_back; };
    // A window that holds all is no approximation.
    const bool certified = position == "alibi";
    const GeneratedStream made = generate_unbounded(test_context(), loaded, request, {.window = certified ? 0 : 2000});
    EXPECT_EQ(ids, whole.ids);
    EXPECT_EQ(text, whole.text);
    EXPECT_EQ(made.ended, Ended::kLength);
    EXPECT_EQ(made.unbounded.tokens, 30);
    EXPECT_EQ(made.unbounded.certified, certified);
    EXPECT_EQ(made.unbounded.to_json()["approximation"], !certified);
    EXPECT_THAT(made.unbounded.text(), HasSubstr(certified ? "no key was dropped" : "an approximation"));
  }
}

TEST_F(UnboundedTest, ItEndsAsGenerateDoes) {
  LoadedModel& loaded = model("alibi");
  GenerationConfig config{.max_tokens = 200, .stop = {"e"}};
  const Sample whole = generate(test_context(), loaded, {}, config).samples[0];
  ASSERT_EQ(whole.ended, Ended::kStop);
  std::string text;
  TextRequest request{.config = config};
  request.on_token = [&](const MadeToken& t) { text += t.text; };
  request.on_end = [&](Ended, const std::string& held_back) { text += held_back; };
  const GeneratedStream made = generate_unbounded(test_context(), loaded, request, {});
  EXPECT_EQ(made.ended, Ended::kStop);
  EXPECT_EQ(text, whole.text);
  request.should_stop = [] { return true; };
  EXPECT_EQ(generate_unbounded(test_context(), loaded, request, {}).ended, Ended::kAsked);
}

TEST_F(UnboundedTest, WhatDoesNotFitTheMethodIsRefused) {
  const auto refused = [](LoadedModel& loaded, const UnboundedConfig& config) {
    try {
      config.validate(loaded);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::kUsage);
      return std::string(e.what());
    }
    return std::string();
  };
  LoadedModel& alibi = model("alibi");
  EXPECT_EQ(refused(alibi, {.strict = true}), "");
  EXPECT_THAT(refused(alibi, {.window = 20}), HasSubstr("--window"));
  LoadedModel& rotary = model("rotary");
  EXPECT_EQ(refused(rotary, {.window = 20}), "");
  EXPECT_THAT(UnboundedConfig{.window = 20}.announcement(rotary),
              AllOf(HasSubstr("an approximation"), HasSubstr("the last 20 tokens and the first 4")));
  EXPECT_THAT(refused(rotary, {.strict = true}), HasSubstr("--strict"));
  EXPECT_THAT(refused(rotary, {.window = -1}), HasSubstr("--window"));
  EXPECT_THAT(refused(rotary, {.sinks = 1000}), HasSubstr("--sinks"));
  LoadedModel& learned = model("learned");
  EXPECT_THAT(refused(learned, {}), AllOf(HasSubstr("'learned'"), HasSubstr("not defined beyond 24")));
  EXPECT_THROW(score_unbounded(test_context(), rotary, reader(""), {}), Error);
}

TEST_F(UnboundedTest, AskedToStopItSaysHowFarItCame) {
  LoadedModel& loaded = model("t5");
  int64_t asked = 0;
  ScoreStreamCallbacks callbacks;
  callbacks.should_stop = [&] { return ++asked > 3; };
  const ScoredStream stream = score_unbounded(test_context(), loaded, reader(small_text(9000)), {}, callbacks);
  EXPECT_FALSE(stream.finished);
  EXPECT_EQ(stream.unbounded.tokens, 3 * 1024);
  EXPECT_TRUE(std::isfinite(stream.loss));
  EXPECT_EQ(stream.unbounded.window, 24) << "the training length";
}

}  // namespace
}  // namespace longshot
