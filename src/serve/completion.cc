#include "serve/completion.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "generate/length_label.h"
#include "serve/error_reply.h"

namespace longshot {
namespace {

constexpr const char* kRoute = "/v1/completions";

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.data() + i, text.data() + text.size());
    if (c.value == kInvalidCodePoint) return false;
    i += c.length;
  }
  return true;
}

size_t code_points(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// A token's text, or where it is a part of a character "bytes:\xe2", as OpenAI's interface has it.
std::string token_name(const std::string& text) {
  if (is_utf8(text)) return text;
  std::string name = "bytes:";
  for (const char c : text) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

uint64_t random_seed() {
  std::random_device device;
  return device() % (uint64_t{1} << 31);
}

// One text of the answer.
struct Choice {
  Choice(const Tokenizer& tokenizer, int64_t prompt) : tokens(tokenizer), prompt_tokens(prompt) {}

  TokenText tokens;
  int64_t prompt_tokens = 0, made = 0;
  uint64_t seed = 0;
  std::string text{};                 // not yet sent
  size_t sent = 0;                    // code points
  std::vector<MadeToken> pending{};   // tokens that were not yet sent
  std::vector<std::string> pieces{};  // what each of these adds
  Json ending = nullptr;
};

// Lives as long as its texts are made: their callbacks hold it, and run on one thread, one after the other.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(ServedModel served, CompletionRequest request, std::shared_ptr<Exchange> exchange)
      : served_(std::move(served)), request_(std::move(request)), exchange_(std::move(exchange)) {
    if (!request_.has_seed) request_.config.sampling.seed = random_seed();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    created_ = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    id_ = fmt::format("cmpl-{:08x}{:08x}", random_seed(), random_seed());
  }

  std::vector<std::unique_ptr<Continuation>> texts() {
    std::vector<std::unique_ptr<Continuation>> all;
    const LoadedModel& loaded = served_.engine->loaded();
    for (const Prompt& prompt : request_.prompts) {
      const auto* text = std::get_if<std::string>(&prompt);
      const std::vector<int32_t> ids = text ? loaded.tokenizer->encode(*text) : std::get<std::vector<int32_t>>(prompt);
      for (int64_t s = 0; s < request_.config.samples; ++s) {
        choices_.emplace_back(*loaded.tokenizer, static_cast<int64_t>(ids.size()));
        choices_.back().seed = request_.config.sampling.seed + static_cast<uint64_t>(s);
        all.push_back(std::make_unique<Continuation>(loaded, text_request(ids, choices_.size() - 1)));
      }
      prompt_tokens_ += static_cast<int64_t>(ids.size());
    }
    return all;
  }
  int64_t prompt_tokens() const { return prompt_tokens_; }

 private:
  TextRequest text_request(const std::vector<int32_t>& prompt, size_t choice) {
    TextRequest r{.prompt = prompt, .config = request_.config, .likeliest = request_.logprobs.value_or(0)};
    r.config.samples = 1;
    r.config.sampling.seed = choices_[choice].seed;
    const auto self = shared_from_this();
    r.on_token = [self, choice](const MadeToken& token) { self->on_token(choice, token); };
    r.on_end = [self, choice](Ended ended, const std::string& text) { self->on_end(choice, ended, text); };
    r.should_stop = [self] { return self->should_stop(); };
    return r;
  }

  bool is_late() const { return seconds_now() - start_ > served_.engine->config().seconds; }
  bool should_stop() const { return exchange_->gone() || failed_ || served_.engine->is_ending() || is_late(); }

  void on_token(size_t index, const MadeToken& token) {
    Choice& choice = choices_[index];
    served_.metrics->count_token();
    if (first_seconds_ == 0) {
      first_seconds_ = seconds_now() - start_;
      served_.metrics->count_first_token(first_seconds_);
    }
    ++choice.made;
    choice.text += token.text;
    if (request_.logprobs) {
      choice.pieces.push_back(choice.tokens.push(token.token.id));
      choice.pending.push_back(token);
    }
    if (request_.stream && !choice.text.empty()) send_chunk(index);
  }

  void on_end(size_t index, Ended ended, const std::string& text) {
    served_.metrics->count_end(ended);
    if (ended == Ended::kAsked) return give_up();
    Choice& choice = choices_[index];
    choice.text += text;
    choice.ending = ended == Ended::kLength ? "length" : "stop";
    if (request_.stream) send_chunk(index);
    if (++done_ == choices_.size()) finish();
  }

  void give_up() {
    if (failed_ || exchange_->gone()) return;
    failed_ = true;
    const bool ending = served_.engine->is_ending();
    const int status = ending ? 503 : 504;
    const std::string why = ending ? "the server is stopping"
                                   : fmt::format("the answer was not there after {} seconds (--max-seconds)",
                                                 served_.engine->config().seconds);
    if (!streaming_) {
      served_.metrics->count_reply(kRoute, status);
      return exchange_->reply(error_reply(status, why));
    }
    exchange_->send("data: " + dump_json(error_json(status, why)) + "\n\n");
    exchange_->end_stream();
  }

  void finish() {
    served_.metrics->count_reply(kRoute, 200);
    if (request_.stream) {
      if (request_.include_usage) {
        Json last = head();
        last["choices"] = Json::array();
        last["usage"] = usage();
        exchange_->send("data: " + dump_json(last) + "\n\n");
      }
      exchange_->send("data: [DONE]\n\n");
      return exchange_->end_stream();
    }
    Json answer = head();
    answer["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) answer["choices"].push_back(choice_json(i));
    answer["usage"] = usage();
    exchange_->reply({.body = dump_json(answer) + "\n"});
  }

  void send_chunk(size_t index) {
    if (!std::exchange(streaming_, true)) exchange_->begin_stream("text/event-stream");
    Json chunk = head();
    chunk["choices"] = Json::array({choice_json(index)});
    exchange_->send("data: " + dump_json(chunk) + "\n\n");
  }

  Json head() const {
    return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", served_.name}};
  }

  Json usage() const {
    int64_t made = 0;
    for (const Choice& choice : choices_) made += choice.made;
    return {{"prompt_tokens", prompt_tokens_}, {"completion_tokens", made}, {"total_tokens", prompt_tokens_ + made}};
  }

  // What has not been sent yet; all that is known of the text once it has ended.
  Json choice_json(size_t index) {
    Choice& choice = choices_[index];
    Json json{{"index", index}, {"text", choice.text}, {"logprobs", nullptr}, {"finish_reason", choice.ending}};
    if (request_.logprobs) json["logprobs"] = logprobs_json(choice);
    choice.sent += code_points(choice.text);
    choice.text.clear();
    if (choice.ending.is_null()) return json;
    const int64_t train_length = served_.engine->loaded().info.model.length;
    json["longshot"] = {{"length", length_label(choice.prompt_tokens + 1 + choice.made, train_length)},
                        {"tokens", choice.prompt_tokens + 1 + choice.made},
                        {"train_length", train_length},
                        {"seed", choice.seed},
                        {"seconds", seconds_now() - start_},
                        {"seconds_to_first_token", first_seconds_}};
    return json;
  }

  Json logprobs_json(Choice& choice) const {
    const Tokenizer& tokenizer = *served_.engine->loaded().tokenizer;
    Json json{{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()},
              {"token_ids", Json::array()}};
    size_t offset = choice.sent;
    for (size_t i = 0; i < choice.pending.size(); ++i) {
      const MadeToken& token = choice.pending[i];
      Json top = Json::object();
      for (const TokenChance& chance : token.likeliest) {
        const bool own = chance.id == token.token.id;
        top[token_name(own ? choice.pieces[i] : tokenizer.token(chance.id))] = chance.log_p;
      }
      json["tokens"].push_back(token_name(choice.pieces[i]));
      json["token_logprobs"].push_back(token.token.log_p);
      json["top_logprobs"].push_back(std::move(top));
      json["text_offset"].push_back(offset);
      offset += code_points(choice.pieces[i]);
      json["token_ids"].push_back(token.token.id);
    }
    choice.pending.clear();
    choice.pieces.clear();
    return json;
  }

  const ServedModel served_;
  CompletionRequest request_;
  std::shared_ptr<Exchange> exchange_;
  std::string id_;
  int64_t created_ = 0, prompt_tokens_ = 0;
  double start_ = seconds_now(), first_seconds_ = 0;
  std::vector<Choice> choices_;
  size_t done_ = 0;
  bool streaming_ = false, failed_ = false;
};

}  // namespace

void answer_completion(const ServedModel& served, CompletionRequest request,
                       const std::shared_ptr<Exchange>& exchange) {
  if (request.model && *request.model != served.name) {
    served.metrics->count_reply(kRoute, 404);
    return exchange->reply(error_reply(
        404, fmt::format("the model here is '{}', not '{}'", served.name, shown(*request.model)), "model_not_found"));
  }
  const auto completion = std::make_shared<Completion>(served, std::move(request), exchange);
  auto texts = completion->texts();
  if (!served.engine->submit(std::move(texts))) {
    served.metrics->count_reply(kRoute, 429);
    return exchange->reply(error_reply(429, "too many texts are waiting; try again later", "queue_full"));
  }
  served.metrics->count_prompt(completion->prompt_tokens());
}

}  // namespace longshot
