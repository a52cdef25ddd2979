#include "serve/completion_request.h"

#include <algorithm>

#include "base/error.h"
#include "serve/request_fields.h"

namespace longshot {
namespace {

constexpr size_t kMostPrompts = 64, kMostStops = 16, kLongestStop = 1000;
constexpr int64_t kMostTexts = 64, kMostLogprobs = 20;

std::vector<Prompt> prompts_of(const Json* prompt) {
  require_usage(prompt != nullptr, "'prompt' is missing: the text to continue, or its token ids");
  if (prompt->is_string()) return {prompt->get<std::string>()};
  require_usage(prompt->is_array(), "'prompt' must be a text, a list of token ids, or a list of these, but is {}",
                prompt->type_name());
  const bool of_prompts = !prompt->empty() && (prompt->front().is_string() || prompt->front().is_array());
  if (!of_prompts) return {ids_of(*prompt, "prompt")};
  require_usage(prompt->size() <= kMostPrompts, "'prompt' holds {} prompts; {} is the most", prompt->size(),
                kMostPrompts);
  std::vector<Prompt> prompts;
  for (const Json& one : *prompt) {
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
    } else {
      prompts.emplace_back(ids_of(one, "prompt"));
    }
  }
  return prompts;
}

// Messages about options name them as the command line does: "--top-k" is the field 'top_k'.
std::string as_field(std::string message) {
  if (!message.starts_with("--")) return message;
  const size_t end = message.find_first_of(": ");
  std::string name = message.substr(2, end - 2);
  std::ranges::replace(name, '-', '_');
  return "'" + name + "'" + message.substr(end);
}

void read_sampling(RequestFields& fields, CompletionRequest& r) {
  SamplingConfig& s = r.config.sampling;
  s.temperature = fields.number("temperature").value_or(s.temperature);
  s.top_k = fields.count("top_k").value_or(s.top_k);
  s.top_p = fields.number("top_p").value_or(s.top_p);
  s.min_p = fields.number("min_p").value_or(s.min_p);
  s.repetition_penalty = fields.number("repetition_penalty").value_or(s.repetition_penalty);
  s.repetition_window = fields.count("repetition_window").value_or(s.repetition_window);
  const auto seed = fields.seed("seed");
  r.has_seed = seed.has_value();
  s.seed = seed.value_or(s.seed);
}

void read_lengths(RequestFields& fields, CompletionRequest& r) {
  r.config.max_tokens = fields.count("max_tokens").value_or(r.config.max_tokens);
  r.config.samples = fields.count("n").value_or(1);
  r.config.context = fields.count("context").value_or(0);
  r.config.ignore_end = fields.flag("ignore_eos").value_or(false);
  r.config.stop = fields.texts("stop").value_or(std::vector<std::string>{});
  require_usage(r.config.stop.size() <= kMostStops, "'stop' holds {} texts; {} is the most", r.config.stop.size(),
                kMostStops);
  for (const std::string& stop : r.config.stop) {
    require_usage(!stop.empty() && stop.size() <= kLongestStop, "'stop': a text of {} bytes is not between 1 and {}",
                  stop.size(), kLongestStop);
  }
  r.logprobs = fields.count("logprobs");
  require_usage(r.logprobs.value_or(0) <= kMostLogprobs, "'logprobs': {} is not between 0 and {}",
                r.logprobs.value_or(0), kMostLogprobs);
}

}  // namespace

CompletionRequest parse_completion(std::string_view body) {
  RequestFields fields(body);
  CompletionRequest r;
  r.prompts = prompts_of(fields.find("prompt"));
  r.model = fields.text("model");
  read_sampling(fields, r);
  read_lengths(fields, r);
  r.stream = fields.flag("stream").value_or(false);
  if (auto options = fields.object("stream_options")) {
    r.include_usage = options->flag("include_usage").value_or(false);
    options->finish();
  }
  fields.ignore("user");
  fields.require_neutral("echo", {false});
  fields.require_neutral("suffix", {""});
  fields.require_neutral("best_of", {1, static_cast<uint64_t>(r.config.samples)});
  fields.require_neutral("frequency_penalty", {0, 0.0});
  fields.require_neutral("presence_penalty", {0, 0.0});
  fields.require_neutral("logit_bias", {Json::object()});
  fields.finish();
  require_usage(r.config.samples >= 1 && r.texts() <= kMostTexts,
                "'n': {} texts of {} prompts are not between 1 and {}", r.config.samples, r.prompts.size(), kMostTexts);
  try {
    r.config.validate();
  } catch (const Error& e) {
    fail_usage("{}", as_field(e.what()));
  }
  return r;
}

TokenizeRequest parse_tokenize(std::string_view body) {
  RequestFields fields(body);
  const auto content = fields.text("content"), prompt = fields.text("prompt");
  fields.ignore("model");
  fields.finish();
  require_usage(content.has_value() != prompt.has_value(), "'content' is missing: the text to be cut into tokens");
  return {content.value_or(prompt.value_or(""))};
}

DetokenizeRequest parse_detokenize(std::string_view body) {
  RequestFields fields(body);
  const Json* tokens = fields.find("tokens");
  require_usage(tokens != nullptr, "'tokens' is missing: the ids to be put together");
  DetokenizeRequest r{ids_of(*tokens, "tokens")};
  fields.ignore("model");
  fields.finish();
  return r;
}

}  // namespace longshot
