// The same request gives the same text, to the last bit, whatever else is being made.
#include "generate/scheduler.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "generate/generator.h"
#include "generate/support.h"
#include "model/support.h"

namespace longshot {
namespace {

using testing::HasSubstr;

uint64_t random_below(uint64_t n, uint64_t a, uint64_t b = 0) { return random_bits(7, Stream::kTest, a, b) % n; }

class SchedulerTest : public SmallModelTest {
 protected:
  // Request `i`: prompts of nothing to several pieces, texts of a few tokens to many, some with a context of their own.
  static TextRequest request(const LoadedModel& loaded, uint64_t i) {
    const bool short_reach = loaded.model->position().max_length() < 1000;
    const uint64_t lengths[] = {0, 3, 17, 96, 130, 383, 384, 500, 900};
    const std::string text = small_text(short_reach ? random_below(12, i, 1) : lengths[random_below(9, i, 1)]);
    TextRequest r{.prompt = {text.begin(), text.end()}};
    r.config.max_tokens = static_cast<int64_t>(short_reach ? 1 + random_below(11, i, 2) : random_below(50, i, 2));
    r.config.sampling.seed = 100 + i;
    r.config.sampling.temperature = i % 5 == 0 ? 0 : 0.9;
    r.config.sampling.repetition_penalty = i % 3 == 0 ? 1.2 : 1;
    if (i % 4 == 1) r.config.context = static_cast<int64_t>(1 + random_below(200, i, 3));
    if (i % 4 == 2) r.config.stop = {"e"};
    return r;
  }

  // What came of a request, and where it was stopped.
  struct Outcome {
    std::vector<int32_t> ids{};
    std::vector<float> log_p{};
    std::string text{};
    std::optional<Ended> ended{};
  };
  static TextRequest watched(TextRequest r, Outcome& outcome, size_t stop_after) {
    r.on_token = [&outcome](const MadeToken& token) {
      outcome.ids.push_back(token.token.id);
      outcome.log_p.push_back(token.token.log_p);
      outcome.text += token.text;
    };
    r.on_end = [&outcome](Ended ended, const std::string& text) {
      EXPECT_FALSE(outcome.ended) << "ended twice";
      outcome.text += text;
      outcome.ended = ended;
    };
    r.should_stop = [&outcome, stop_after] { return outcome.ids.size() >= stop_after; };
    return r;
  }
};

TEST_F(SchedulerTest, ATextDependsOnItsRequestAlone) {
  for (const std::string& position : position_names()) {
    SCOPED_TRACE(position);
    LoadedModel& loaded = model(position);
    constexpr uint64_t kRequests = 18;
    std::vector<Sample> alone;
    for (uint64_t i = 0; i < kRequests; ++i) {
      const TextRequest r = request(loaded, i);
      alone.push_back(generate(test_context(), loaded, r.prompt, r.config).samples[0]);
    }
    for (const uint64_t slots : {1, 2, 7, 16}) {
      SCOPED_TRACE(slots);
      const int64_t reach = std::min<int64_t>(loaded.model->position().max_length(), 1000);
      Scheduler scheduler(test_context(), loaded, {.slots = static_cast<int64_t>(slots), .capacity = reach});
      std::vector<Outcome> outcomes(kRequests);
      const auto stop_after = [](uint64_t i) -> size_t { return i % 6 == 5 ? 1 + i : 1000; };
      uint64_t added = 0;
      for (uint64_t step = 0; added < kRequests || scheduler.running() + scheduler.waiting() > 0; ++step) {
        while (added < kRequests && random_below(3, 50 + slots, step) > 0) {
          const uint64_t i = (added * 7 + slots) % kRequests;  // in another order each time
          scheduler.add(watched(request(loaded, i), outcomes[i], stop_after(i)));
          ++added;
          if (random_below(2, 60 + slots, step + added) == 0) break;
        }
        scheduler.step();
        ASSERT_LE(scheduler.running(), static_cast<int64_t>(slots));
      }
      for (uint64_t i = 0; i < kRequests; ++i) {
        SCOPED_TRACE(i);
        const Outcome& got = outcomes[i];
        ASSERT_TRUE(got.ended);
        const size_t count = *got.ended == Ended::kAsked ? got.ids.size() : alone[i].ids.size();
        ASSERT_EQ(got.ids, std::vector(alone[i].ids.begin(), alone[i].ids.begin() + static_cast<int64_t>(count)));
        for (size_t t = 0; t < count; ++t) ASSERT_EQ(got.log_p[t], alone[i].log_p[t]) << "to the last bit, at " << t;
        if (*got.ended == Ended::kAsked) {
          EXPECT_EQ(count, stop_after(i));
        } else {
          EXPECT_EQ(got.text, alone[i].text);
          EXPECT_EQ(*got.ended, alone[i].ended);
        }
      }
    }
  }
}

// A token that may see `context` tokens gets what a pass over the whole text with that window gets.
TEST_F(SchedulerTest, AContextIsAWindow) {
  for (const std::string& position : position_names()) {
    SCOPED_TRACE(position);
    LoadedModel& loaded = model(position);
    const auto reach = static_cast<size_t>(std::min<int64_t>(loaded.model->position().max_length(), 600));
    const std::string text = small_text(reach - 2);
    GenerationConfig config{.sampling = {.temperature = 0}, .max_tokens = 1, .context = 9};
    const std::vector<int32_t> ids(text.begin(), text.end());
    const Sample made = generate(test_context(), loaded, ids, config).samples[0];
    std::vector<int32_t> inputs{loaded.tokenizer->start_id()};
    inputs.insert(inputs.end(), ids.begin(), ids.end());
    const auto length = static_cast<int64_t>(inputs.size());
    Inference whole(test_context(), *loaded.model, {.sequences = 1, .tokens = length, .window = 9});
    std::vector<float> want(256);
    whole.log_probabilities({.inputs = inputs, .length = length, .first_key = {}}, length - 1, {want.data(), 1, 256});
    EXPECT_NEAR(made.log_p[0], want[static_cast<size_t>(made.ids[0])], 1e-4);
    config.context = 0;
    EXPECT_NE(generate(test_context(), loaded, ids, config).samples[0].log_p, made.log_p);
  }
}

TEST_F(SchedulerTest, NamesTheLikeliestTokens) {
  LoadedModel& loaded = model("alibi");
  Scheduler scheduler(test_context(), loaded, {.slots = 1, .capacity = 50});
  TextRequest r{.prompt = {'T', 'h'}, .config = {.max_tokens = 5}, .likeliest = 4};
  int tokens = 0;
  r.on_token = [&](const MadeToken& token) {
    ++tokens;
    ASSERT_EQ(token.likeliest.size(), 4u);
    for (size_t i = 1; i < 4; ++i) EXPECT_GE(token.likeliest[i - 1].log_p, token.likeliest[i].log_p);
    EXPECT_LE(token.token.log_p, token.likeliest[0].log_p);
    for (const TokenChance& chance : token.likeliest) {
      EXPECT_TRUE(chance.id != token.token.id || chance.log_p == token.token.log_p);
    }
  };
  scheduler.add(r);
  while (scheduler.step()) continue;
  EXPECT_EQ(tokens, 5);
}

TEST_F(SchedulerTest, WhatCannotBeServedIsRefused) {
  LoadedModel& loaded = model("learned");
  Scheduler scheduler(test_context(), loaded, {.slots = 1, .capacity = 20});
  const auto refused = [&](const TextRequest& r, const std::string& why) {
    try {
      scheduler.add(r);
      FAIL() << why;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::kUsage);
      EXPECT_THAT(e.what(), HasSubstr(why));
    }
  };
  refused({.prompt = {'a'}, .config = {.max_tokens = 30}}, "'learned' is not defined beyond 24");
  refused({.prompt = {'a'}, .config = {.max_tokens = 21}}, "room for 20");
  refused({.prompt = {256}, .config = {.max_tokens = 1}}, "id 256 is outside the vocabulary of 256");
  refused({.prompt = {-1}, .config = {.max_tokens = 1}}, "id -1");
  refused({.prompt = {}, .config = {.max_tokens = 1, .stop = {""}}}, "empty");
  refused({.prompt = {}, .config = {.max_tokens = 1, .context = -1}}, "--context");
  EXPECT_EQ(scheduler.waiting(), 0);
  EXPECT_FALSE(scheduler.step());
}

}  // namespace
}  // namespace longshot
