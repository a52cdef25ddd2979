// Many at a time: nothing is lost, nothing is mixed up, and the same request gives the same text as alone.
#include "base/rng.h"
#include "generate/generator.h"
#include "serve/support.h"

namespace longshot {
namespace {

class ServeLoad : public ServeTest {
 protected:
  struct Question {
    std::string prompt;
    int64_t tokens;
    uint64_t seed;
    bool stream;
  };
  static Question question(uint64_t i) {
    const auto below = [i](uint64_t n, uint64_t what) { return random_bits(3, Stream::kTest, what, i) % n; };
    const uint64_t lengths[] = {0, 5, 30, 100, 400, 700};
    return {small_text(lengths[below(6, 1)]), static_cast<int64_t>(1 + below(60, 2)), 1 + i, below(2, 3) == 1};
  }
  static std::string request(const Question& q) {
    const Json body{{"prompt", q.prompt}, {"max_tokens", q.tokens}, {"seed", q.seed}, {"stream", q.stream}};
    return post_text("/v1/completions", body.dump());
  }
  static std::string text_of(const Question& q, const Answer& a) {
    if (!q.stream) return a.json()["choices"][0]["text"];
    std::string text;
    for (const Json& event : events_of(a.body)) text += event["choices"][0]["text"].get<std::string>();
    return text;
  }
};

TEST_F(ServeLoad, TwoHundredRequestsSixteenAtATime) {
  ServeConfig config;
  config.engine.slots = 7, config.engine.queue = 32;
  start(config);
  constexpr uint64_t kRequests = 200, kClients = 16;
  std::vector<std::string> texts(kRequests);
  std::atomic<uint64_t> next{0}, cut_off{0};
  const auto work = [&] {
    auto client = std::make_unique<Client>(port_);
    for (uint64_t i = 0; (i = next++) < kRequests;) {
      if (i % 10 == 3) {  // one that goes away in the middle of its answer
        Client gone(port_);
        gone.send(post_text("/v1/completions", R"({"prompt":"x","max_tokens":4000,"stream":true})"));
        gone.take_until("data: ");
        ++cut_off;
      }
      const Question q = question(i);
      client->send(request(q));
      const Answer a = client->answer();
      ASSERT_EQ(a.status, 200) << a.body;
      texts[i] = text_of(q, a);
      if (i % 7 == 0) client = std::make_unique<Client>(port_);
    }
  };
  std::vector<std::thread> clients;
  for (uint64_t c = 0; c < kClients; ++c) clients.emplace_back(work);
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(cut_off, 20u);
  EXPECT_TRUE(comes_true([&] { return metric("longshot_texts_total{ended=\"asked\"}") == 20; }));
  EXPECT_EQ(metric("longshot_texts_total{ended=\"length\"}"), 200);
  stop();
  for (uint64_t i = 0; i < kRequests; ++i) {
    const Question q = question(i);
    const GenerationConfig alone{.sampling = {.seed = q.seed}, .max_tokens = q.tokens};
    const std::vector<int32_t> ids(q.prompt.begin(), q.prompt.end());
    const std::string want = generate(test_context(), loaded_, ids, alone).samples[0].text;
    ASSERT_EQ(texts[i], parse_json(dump_json(Json(want)), "text").get<std::string>()) << "request " << i;
  }
}

}  // namespace
}  // namespace longshot
