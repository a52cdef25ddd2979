#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/prompt.h"
#include "generate/generator.h"
#include "generate/length_label.h"
#include "generate/unbounded.h"

namespace longshot {
namespace {

class GenerateCommand : public Command {
 public:
  Arguments arguments() const override { return {"RUN", 1, 1}; }

  void options(Options& o) override {
    o.add("prompt", prompt_, "text to continue; without it --prompt-file, or standard input");
    o.add("prompt-file", prompt_file_, "a file that holds the text to continue");
    config_.fields(o);
    unbounded_.fields(o);
    o.group("");
    o.add("json", json_,
          "print one JSON object: text, ids and ln p of every sample; --unbounded: one a line for each token, then one "
          "of "
          "the whole");
    model_.fields(o);
  }

  int run() override {
    require_usage(prompt_.empty() || prompt_file_.empty(), "--prompt and --prompt-file: one of them");
    config_.validate();
    Progress progress;
    ModelSession session(model_, args[0], progress);
    if (prompt_.empty() && prompt_file_.empty() && ::isatty(STDIN_FILENO)) return converse(session);
    const std::string text = !prompt_.empty() ? prompt_ : read_prompt(prompt_file_.empty() ? "-" : prompt_file_);
    return answer(session, text);
  }

 private:
  // A prompt a line, until the end of input.
  int converse(ModelSession& session) {
    fmt::print(stderr, "a prompt on a line of its own; Ctrl-D ends\n");
    for (std::string line; !stop_requested();) {
      fmt::print(stderr, "> ");
      if (!std::getline(std::cin, line)) break;
      if (const int code = answer(session, line)) return code;
    }
    return 0;
  }

  int answer(ModelSession& session, const std::string& text) {
    const std::vector<int32_t> prompt =
        session.loaded.required_tokenizer().encode(text, {.should_stop = stop_requested});
    print_heading(session.loaded, prompt);
    if (unbounded_.on) return stream(session, text, prompt);
    GenerationCallbacks callbacks;
    callbacks.should_stop = stop_requested;
    const bool stream = !json_ && config_.samples == 1;
    Echo echo{text};
    callbacks.on_text = [&](int64_t, const std::string& piece) {
      if (stream) echo.show(piece);
    };
    const Generated made = generate(session.context, session.loaded, prompt, config_, callbacks);
    if (json_) {
      print_json(session.loaded, text, prompt, made);
    } else if (stream) {
      echo.show("\n");
    } else {
      for (size_t s = 0; s < made.samples.size(); ++s)
        fmt::print("--- {}\n{}{}\n", s + 1, shown_text(text), shown_text(made.samples[s].text));
    }
    flush_output();
    print_times(made);
    return stop_requested() ? 1 : 0;
  }

  int stream(ModelSession& session, const std::string& text, const std::vector<int32_t>& prompt) const {
    Progress progress;
    TextRequest request{.prompt = prompt, .config = config_, .should_stop = stop_requested};
    Echo echo{text};
    std::string held_back;
    request.on_token = [&](const MadeToken& t) {
      progress.clear();
      if (!json_) return echo.show(t.text);
      show_json(Json{{"id", t.token.id}, {"log_probability", t.token.log_p}, {"text", t.text}});
    };
    request.on_end = [&](Ended, const std::string& rest) {
      if (!json_) echo.show(rest);
      held_back = rest;
    };
    progress.note(unbounded_.announcement(session.loaded));
    const GeneratedStream made = generate_unbounded(session.context, session.loaded, std::move(request), unbounded_,
                                                    watched(progress, "bounding what keys can matter"));
    if (json_) {
      show_json(Json{{"model", args[0]},
                     {"prompt_tokens", prompt.size()},
                     {"tokens", made.unbounded.tokens},
                     {"seconds", made.unbounded.seconds},
                     {"seconds_to_first_token", made.first_seconds},
                     {"ended_by", name_of(kEndings, made.ended)},
                     {"held_back", held_back},
                     {"unbounded", made.unbounded.to_json()}});
    } else {
      echo.show("\n");
    }
    flush_output();
    const double rest = std::max(made.unbounded.seconds - made.first_seconds, 1e-9);
    fmt::print(stderr, "{} tokens, {} tokens/s; the first after {:.3f} s; ended by: {}\n{}\n", made.unbounded.tokens,
               count_text(static_cast<double>(std::max<int64_t>(made.unbounded.tokens - 1, 0)) / rest),
               made.first_seconds, name_of(kEndings, made.ended), made.unbounded.text());
    return stop_requested() ? 1 : 0;
  }

  // What is made, behind its prompt: a request that is refused shows neither.
  struct Echo {
    std::string prompt;
    void show(const std::string& piece) {
      fmt::print("{}", shown_text(prompt + piece));
      flush_output();
      prompt.clear();
    }
  };

  // Text on a terminal; a pipe gets the bytes.
  static std::string shown_text(const std::string& text) {
    return ::isatty(STDOUT_FILENO) ? printable(text, true) : text;
  }

  void print_heading(const LoadedModel& loaded, const std::vector<int32_t>& prompt) const {
    const auto all = static_cast<int64_t>(prompt.size()) + 1 + config_.max_tokens;
    const int32_t start = loaded.tokenizer->start_id();
    fmt::print(stderr, "{} tokens of prompt behind '{}' (id {}), which begins every text; {}\n", prompt.size(),
               printable(loaded.tokenizer->token(start)), start, length_label(all, loaded.info.model.length));
  }

  static void print_times(const Generated& made) {
    size_t tokens = 0;
    for (const Sample& s : made.samples) tokens += s.ids.size();
    const double rest = std::max(made.seconds - made.first_seconds, 1e-9);
    const auto later = static_cast<double>(tokens - std::min(tokens, made.samples.size()));
    fmt::print(stderr, "{} tokens, {} tokens/s; the first after {:.3f} s; ended by: {}\n", tokens,
               count_text(later / rest), made.first_seconds, name_of(kEndings, made.samples[0].ended));
  }

  void print_json(const LoadedModel& loaded, const std::string& text, const std::vector<int32_t>& prompt,
                  const Generated& made) const {
    Json json{{"model", args[0]},
              {"prompt", text},
              {"prompt_tokens", prompt.size()},
              {"start_id", loaded.tokenizer->start_id()},
              {"train_length", loaded.info.model.length},
              {"seconds", made.seconds},
              {"seconds_to_first_token", made.first_seconds},
              {"samples", Json::array()}};
    for (const Sample& s : made.samples) {
      json["samples"].push_back(
          {{"text", s.text}, {"ids", s.ids}, {"log_probabilities", s.log_p}, {"ended_by", name_of(kEndings, s.ended)}});
    }
    show_json(json, 2);
  }

  std::string prompt_, prompt_file_;
  GenerationConfig config_;
  UnboundedConfig unbounded_;
  bool json_ = false;
  ModelOptions model_;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() { return std::make_unique<GenerateCommand>(); }

}  // namespace longshot
