// What clients ask for and what they get.
#include <fstream>

#include "generate/generator.h"
#include "serve/support.h"

namespace longshot {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ServeApi : public ServeTest {
 protected:
  static std::vector<int32_t> ids(const std::string& text) {
    std::vector<int32_t> out;
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
    return out;
  }
  void refused(const Json& body, const std::string& why, int status = 400) const {
    const Answer a = complete(body);
    EXPECT_EQ(a.status, status) << body;
    EXPECT_THAT(a.error(), HasSubstr(why)) << body;
  }
};

TEST_F(ServeApi, ACompletionIsWhatGenerateMakes) {
  start();
  const std::string prompt = small_text(40);
  const Answer a = complete({{"prompt", prompt}, {"max_tokens", 60}, {"seed", 7}, {"model", "tiny"}, {"user", "me"}});
  ASSERT_EQ(a.status, 200) << a.body;
  const Json json = a.json();
  GenerationConfig config{.sampling = {.seed = 7}, .max_tokens = 60};
  const Sample want = generate(test_context(), loaded_, ids(prompt), config).samples[0];
  const Json& choice = json["choices"][0];
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(choice["text"], Json(want.text));
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"], nullptr);
  EXPECT_EQ(choice["longshot"]["length"], "4.2 times the training length 24");
  EXPECT_EQ(choice["longshot"]["seed"], 7);
  EXPECT_EQ(json["usage"], (Json{{"prompt_tokens", 40}, {"completion_tokens", 60}, {"total_tokens", 100}}));
}

TEST_F(ServeApi, AStreamIsTheSameText) {
  start();
  Json body{{"prompt", "Verse"}, {"max_tokens", 50}, {"seed", 3}, {"n", 2}, {"logprobs", 3}, {"stop", {"se"}}};
  const Json whole = complete(body).json();
  body["stream"] = true, body["stream_options"] = {{"include_usage", true}};
  const Answer a = complete(body);
  EXPECT_EQ(a.headers.at("content-type"), "text/event-stream");
  std::vector<std::string> texts(2), reasons(2);
  std::vector<Json> log_p(2, Json::array());
  Json usage;
  for (const Json& event : events_of(a.body)) {
    if (event.contains("usage")) usage = event["usage"];
    for (const Json& choice : event["choices"]) {
      const auto i = choice["index"].get<size_t>();
      EXPECT_EQ(reasons[i], "") << "nothing follows the end";
      texts[i] += choice["text"].get<std::string>();
      for (const Json& p : choice["logprobs"]["token_logprobs"]) log_p[i].push_back(p);
      if (!choice["finish_reason"].is_null()) reasons[i] = choice["finish_reason"];
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    const Json& choice = whole["choices"][i];
    EXPECT_EQ(choice["text"], Json(texts[i]));
    EXPECT_EQ(choice["finish_reason"], Json(reasons[i]));
    EXPECT_EQ(log_p[i], choice["logprobs"]["token_logprobs"]);
    EXPECT_EQ(texts[i].find("se"), std::string::npos);
  }
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_EQ(usage, whole["usage"]);
}

// Bytes at random: many characters of several bytes, whole and broken.
TEST_F(ServeApi, AStreamNeverCutsACharacter) {
  start();
  Json body{{"prompt", ""}, {"max_tokens", 3000}, {"seed", 5}, {"temperature", 100},
            {"top_k", 0},   {"top_p", 1},         {"min_p", 0}};
  const std::string whole = complete(body).json()["choices"][0]["text"];
  body["stream"] = true;
  std::string streamed;
  for (const Json& event : events_of(complete(body).body)) streamed += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(streamed, whole);
  size_t wide = 0;
  for (size_t i = 0; i + 1 < whole.size(); ++i) wide += whole[i] >= '\xC2' && whole[i] <= '\xDF' ? 1 : 0;
  EXPECT_GT(wide, 20u) << "no characters of two bytes: the test shows nothing";
}

TEST_F(ServeApi, LogprobsAreTheModels) {
  start();
  const Json body{{"prompt", "The r"}, {"max_tokens", 8}, {"seed", 2}, {"logprobs", 4}, {"temperature", 1.5}};
  const Json logprobs = complete(body).json()["choices"][0]["logprobs"];
  const GenerationConfig config{.sampling = {.temperature = 1.5, .seed = 2}, .max_tokens = 8};
  const Sample want = generate(test_context(), loaded_, ids("The r"), config).samples[0];
  ASSERT_EQ(logprobs["tokens"].size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(logprobs["token_ids"][i], want.ids[i]);
    EXPECT_FLOAT_EQ(logprobs["token_logprobs"][i], want.log_p[i]);
    EXPECT_EQ(logprobs["text_offset"][i], i);
    EXPECT_EQ(logprobs["top_logprobs"][i].size(), 4u);
  }
}

TEST_F(ServeApi, PromptsOfSeveralKinds) {
  start();
  const Json rest{{"max_tokens", 12}, {"seed", 4}};
  const auto with = [&](const Json& prompt) {
    Json body = rest;
    body["prompt"] = prompt;
    return complete(body).json();
  };
  const Json text = with("The sea"), tokens = with(ids("The sea")), both = with({"The sea", "A"}),
             lists = with(Json::array({ids("The sea"), ids("A")}));
  EXPECT_EQ(text["choices"][0]["text"], tokens["choices"][0]["text"]);
  ASSERT_EQ(both["choices"].size(), 2u);
  EXPECT_EQ(both["choices"][0]["text"], text["choices"][0]["text"]);
  EXPECT_EQ(both["choices"][1]["text"], with("A")["choices"][0]["text"]);
  EXPECT_EQ(lists["choices"][1]["text"], both["choices"][1]["text"]);
  EXPECT_EQ(both["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(with(Json::array())["usage"]["prompt_tokens"], 0) << "no ids are an empty prompt";
}

TEST_F(ServeApi, AContextIsHowFarATokenSees) {
  start();
  Json body{{"prompt", small_text(60)}, {"max_tokens", 20}, {"temperature", 0}, {"logprobs", 0}};
  const Json all = complete(body).json()["choices"][0]["logprobs"]["token_logprobs"];
  body["context"] = 5;
  const Json five = complete(body).json()["choices"][0]["logprobs"]["token_logprobs"];
  EXPECT_NE(all, five);
  body["prompt"] = small_text(60).substr(30);
  const GenerationConfig config{.sampling = {.temperature = 0}, .max_tokens = 20, .context = 5};
  const std::vector<float> want = generate(test_context(), loaded_, ids(small_text(60)), config).samples[0].log_p;
  for (size_t i = 0; i < want.size(); ++i) EXPECT_FLOAT_EQ(five[i], want[i]);
}

TEST_F(ServeApi, SeedsThatNobodyChoseDifferAndAreTold) {
  start();
  const Json body{{"prompt", "T"}, {"max_tokens", 30}};
  const Json a = complete(body).json()["choices"][0], b = complete(body).json()["choices"][0];
  EXPECT_NE(a["longshot"]["seed"], b["longshot"]["seed"]);
  Json again = body;
  again["seed"] = a["longshot"]["seed"];
  EXPECT_EQ(complete(again).json()["choices"][0]["text"], a["text"]);
}

TEST_F(ServeApi, WrongFieldsAreRefusedByName) {
  start();
  refused({{"max_tokens", 3}}, "'prompt' is missing");
  refused({{"prompt", 7}}, "'prompt' must be a text");
  refused({{"prompt", {1, "a"}}}, "no token id");
  refused({{"prompt", {256}}}, "id 256 is outside the vocabulary of 256");
  refused({{"prompt", "a"}, {"max_tokenz", 3}}, "unknown field 'max_tokenz'. Did you mean 'max_tokens'?");
  refused({{"prompt", "a"}, {"max_tokens", -3}}, "'max_tokens' must be a count");
  refused({{"prompt", "a"}, {"max_tokens", 5000}}, "this server takes 4096");
  refused({{"prompt", "a"}, {"temperature", "hot"}}, "'temperature' must be a number, but is \"hot\"");
  refused({{"prompt", "a"}, {"temperature", -1}}, "'temperature': -1 is not between");
  refused({{"prompt", "a"}, {"top_p", 2}}, "'top_p': 2 is not in (0, 1]");
  refused({{"prompt", "a"}, {"n", 0}}, "'n'");
  refused({{"prompt", "a"}, {"n", 1000}}, "'n'");
  refused({{"prompt", "a"}, {"stop", {"a", 1}}}, "'stop' must be a text or a list");
  refused({{"prompt", "a"}, {"stop", ""}}, "'stop'");
  refused({{"prompt", "a"}, {"logprobs", 21}}, "'logprobs': 21");
  refused({{"prompt", "a"}, {"echo", true}}, "'echo' is not supported");
  refused({{"prompt", "a"}, {"frequency_penalty", 0.5}}, "'frequency_penalty' is not supported");
  refused({{"prompt", "a"}, {"stream_options", {{"what", 1}}}}, "'stream_options.what'");
  refused({{"prompt", "a"}, {"model", "gpt"}}, "the model here is 'tiny', not 'gpt'", 404);
  const Json harmless{
      {"prompt", "a"},     {"max_tokens", 1},   {"echo", false},           {"best_of", 1},
      {"suffix", nullptr}, {"user", "someone"}, {"presence_penalty", 0.0}, {"logit_bias", Json::object()}};
  EXPECT_EQ(complete(harmless).status, 200);
}

TEST_F(ServeApi, TheWallOfLearnedPositionsIsNamed) {
  start({}, "learned");
  refused({{"prompt", small_text(20)}, {"max_tokens", 10}}, "'learned' is not defined beyond 24");
  EXPECT_EQ(complete({{"prompt", small_text(13)}, {"max_tokens", 10}}).status, 200);
  EXPECT_EQ(get("/v1/models").json()["data"][0]["longshot"]["max_length"], 24);
}

TEST_F(ServeApi, ModelsTokensHealth) {
  start();
  const Json model = get("/v1/models").json()["data"][0];
  EXPECT_EQ(model["id"], "tiny");
  EXPECT_EQ(model["longshot"]["train_length"], 24);
  EXPECT_EQ(get("/v1/models/tiny").json(), model);
  EXPECT_EQ(get("/v1/models/other").status, 404);
  EXPECT_EQ(get("/health").json()["status"], "ok");
  const Json tokens = post("/tokenize", {{"content", "h\xC3\xA9"}}).json();
  EXPECT_EQ(tokens["tokens"], (Json{104, 0xC3, 0xA9}));
  EXPECT_EQ(post("/detokenize", {{"tokens", tokens["tokens"]}}).json()["content"], "h\xC3\xA9");
  EXPECT_EQ(post("/detokenize", {{"tokens", {999}}}).status, 400);
  EXPECT_EQ(post("/tokenize", {{"text", "x"}}).status, 400);
  const Answer chat = post("/v1/chat/completions", {{"messages", Json::array()}});
  EXPECT_EQ(chat.status, 400);
  EXPECT_EQ(chat.json()["error"]["code"], "no_chat_template");
  EXPECT_EQ(get("/v1/completions").status, 405);
  EXPECT_EQ(get("/v1/completions").headers.at("allow"), "POST");
  EXPECT_EQ(get("/nowhere").status, 404);
  EXPECT_EQ(get("/runs").status, 404) << "no --runs";
}

TEST_F(ServeApi, HealthSaysThatTheModelIsBeingLoaded) {
  ServeConfig config;
  config.http.port = 0;
  server_ = std::make_unique<Server>(config);
  port_ = server_->port();
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/health").json()["status"], "loading");
  EXPECT_EQ(complete({{"prompt", "a"}}).status, 503);
  EXPECT_EQ(get("/").status, 200);
  server_.reset();
}

TEST_F(ServeApi, MetricsCount) {
  start();
  complete({{"prompt", "abc"}, {"max_tokens", 5}});
  complete({{"prompt", "abc"}, {"max_tokens", 2}, {"n", 2}});
  complete({{"prompt", 5}});
  EXPECT_EQ(metric("longshot_prompt_tokens_total"), 6);
  EXPECT_EQ(metric("longshot_generated_tokens_total"), 9);
  EXPECT_EQ(metric("longshot_texts_total{ended=\"length\"}"), 3);
  EXPECT_EQ(metric("longshot_first_token_seconds_count"), 2);
  EXPECT_EQ(metric("longshot_http_requests_total{route=\"/v1/completions\",status=\"200\"}"), 2);
  EXPECT_EQ(metric("longshot_http_requests_total{route=\"/v1/completions\",status=\"400\"}"), 1);
  get("/a-made-up-name");
  EXPECT_EQ(metric("longshot_http_requests_total{route=\"other\",status=\"404\"}"), 1);
  EXPECT_GT(metric("longshot_cache_bytes"), 0);
  EXPECT_THAT(get("/metrics").headers.at("content-type"), HasSubstr("text/plain"));
}

TEST_F(ServeApi, KeysAreAskedFor) {
  std::ofstream(*dir_ / "keys") << "# for tests\nfirst-key\nsecond-key\n";
  ServeConfig config;
  config.api_key_file = (*dir_ / "keys").string();
  start(config);
  for (const char* open : {"/", "/health", "/page.js", "/page.css"}) EXPECT_EQ(get(open).status, 200) << open;
  for (const char* closed : {"/metrics", "/v1/models", "/runs"}) EXPECT_EQ(get(closed).status, 401) << closed;
  const Answer none = complete({{"prompt", "a"}});
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.headers.at("www-authenticate"), "Bearer");
  const auto with = [&](const std::string& header) { return get("/v1/models", header + "\r\n").status; };
  EXPECT_EQ(with("Authorization: Bearer first-key"), 200);
  EXPECT_EQ(with("Authorization: bearer second-key"), 200);
  EXPECT_EQ(with("Authorization: Bearer first-keyx"), 401);
  EXPECT_EQ(with("Authorization: Bearer first-ke"), 401);
  EXPECT_EQ(with("Authorization: Bearer "), 401);
  EXPECT_EQ(with("Authorization: Basic first-key"), 401);
  EXPECT_EQ(with("Authorization: Bearer # for tests"), 401);
  EXPECT_EQ(get("/v1/models?api_key=first-key").status, 401) << "never in the address";
  std::ofstream(*dir_ / "empty") << "# nothing\n";
  config.api_key_file = (*dir_ / "empty").string(), config.http.port = 0;
  EXPECT_THROW(Server{config}, Error);
}

TEST_F(ServeApi, ThePageIsWholeAndClosed) {
  start();
  const Answer page = get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.headers.at("content-security-policy"),
              AllOf(HasSubstr("default-src 'none'"), HasSubstr("frame-ancestors 'none'")));
  EXPECT_EQ(page.body.find("http://"), std::string::npos);
  EXPECT_EQ(page.body.find("https://"), std::string::npos);
  EXPECT_THAT(get("/page.css").body, AllOf(HasSubstr("--c0:"), HasSubstr(".alternatives")));
  EXPECT_EQ(get("/page.js").headers.count("access-control-allow-origin"), 0u);
}

}  // namespace
}  // namespace longshot
