#include "generate/score.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/prompt.h"
#include "data/text_input.h"
#include "evaluate/summary.h"
#include "generate/length_label.h"
#include "generate/unbounded.h"
#include "report/score_page.h"

namespace longshot {
namespace {

double bits(float loss) { return loss / std::log(2.0); }

class ScoreCommand : public Command {
 public:
  Arguments arguments() const override { return {"RUN FILE", 2, 2}; }

  void options(Options& o) override {
    o.add("json", json_,
          "print JSON instead of text; --unbounded: one object a line for each token, then one of the whole");
    o.add("html", html_, "write the coloured text to this file, a page that needs nothing else");
    o.add("summary", summary_, "print what the whole text costs, not every token");
    unbounded_.fields(o);
    o.group("");
    model_.fields(o);
  }

  int run() override {
    if (!html_.empty()) require_writable(html_);
    require_usage(!unbounded_.on || html_.empty(), "--html holds a whole text, which --unbounded does not");
    Progress progress;
    ModelSession session(model_, args[0], progress);
    if (unbounded_.on) return stream(session, progress);
    const std::string text = read_prompt(args[1]);
    ScoredText scored;
    try {
      scored = score_text(session.context, session.loaded, text, watched(progress, "scoring"));
    } catch (const Stopped&) {
      progress.note("stopped");
      return 1;
    }
    progress.clear();
    if (!html_.empty()) write_page(scored);
    json_ ? print_json(scored) : print_text(scored);
    return 0;
  }

 private:
  // A file, or standard input, never as a whole.
  static TextReader reader(const std::string& path) {
    if (path == "-") return [](std::span<char> out) { return std::fread(out.data(), 1, out.size(), stdin); };
    return [input = std::shared_ptr<TextInput>(open_text(path))](std::span<char> out) { return input->read(out); };
  }

  int stream(ModelSession& session, Progress& progress) {
    ScoreStreamCallbacks callbacks;
    callbacks.should_stop = stop_requested;
    callbacks.preparing = watched(progress, "bounding what keys can matter");
    callbacks.on_token = [&](int64_t index, const ScoredToken& t) {
      if (summary_) return;
      progress.clear();
      json_ ? print_token_json(t) : print_token(index, t);
    };
    callbacks.on_progress = [&](int64_t tokens, double loss) {
      progress.show(fmt::format("{} tokens, loss {:.4f}", tokens, loss));
      flush_output();
    };
    progress.note(unbounded_.announcement(session.loaded));
    const ScoredStream scored =
        score_unbounded(session.context, session.loaded, reader(args[1]), unbounded_, callbacks);
    progress.clear();
    if (!scored.finished) progress.note("stopped; what follows is of the text so far");
    json_ ? print_stream_json(session.loaded, scored) : print_stream(session.loaded, scored);
    flush_output();
    return scored.finished ? 0 : 1;
  }

  static void print_token(int64_t index, const ScoredToken& t) {
    if (::isatty(STDOUT_FILENO)) {
      fmt::print("\x1b[48;5;{}m{}\x1b[0m", colour(bits(t.loss)), printable(t.text, true));
    } else {
      fmt::print("{}\t{:.4f}\t{}\n", index, bits(t.loss), printable(t.text));
    }
  }

  static void print_token_json(const ScoredToken& t) {
    show_json(Json{{"id", t.id}, {"text", t.text}, {"bits", bits(t.loss)}});
  }

  void print_stream(const LoadedModel& loaded, const ScoredStream& s) const {
    const int64_t length = loaded.info.model.length;
    fmt::print("{}{} tokens, {} bytes, in one stream: {}\n", summary_ ? "" : "\n", s.unbounded.tokens, s.bytes,
               length_label(s.unbounded.tokens, length));
    fmt::print("{}\n", costs(s.loss, s.bits_per_byte()));
    fmt::print("{} tokens/s; {}\n", count_text(static_cast<double>(s.unbounded.tokens) / s.unbounded.seconds),
               s.unbounded.text());
    print_by_context(s.per_position, length);
  }

  void print_stream_json(const LoadedModel& loaded, const ScoredStream& s) const {
    show_json(Json{{"model", args[0]},
                   {"train_length", loaded.info.model.length},
                   {"tokens", s.unbounded.tokens},
                   {"bytes", s.bytes},
                   {"loss", s.loss},
                   {"perplexity", std::exp(s.loss)},
                   {"bits_per_byte", s.bits_per_byte()},
                   {"seconds", s.unbounded.seconds},
                   {"unbounded", s.unbounded.to_json()}});
  }

  static std::string costs(double loss, double bits_per_byte) {
    return fmt::format("loss {:.4f} nats per token, perplexity {:.3f}, {:.4f} bits per byte", loss, std::exp(loss),
                       bits_per_byte);
  }

  static void print_by_context(const std::vector<PositionLoss>& bins, int64_t train_length) {
    fmt::print("\n{:>14} {:>8} {:>10}\n", "context", "tokens", "bits");
    for (const PositionLoss& p : bins) {
      fmt::print("{:>14} {:>8} {:>10.3f}{}\n", fmt::format("{}..{}", p.from, p.to - 1), p.tokens,
                 p.loss.value_or(NAN) / std::log(2.0), p.from >= train_length ? "  beyond training length" : "");
    }
  }

  static std::vector<float> losses_of(const ScoredText& scored) {
    std::vector<float> losses;
    losses.reserve(scored.tokens.size());
    for (const ScoredToken& t : scored.tokens) losses.push_back(t.loss);
    return losses;
  }

  static std::vector<std::string> facts(const ScoredText& s) {
    const auto tokens = static_cast<int64_t>(s.tokens.size());
    return {
        fmt::format("{} tokens, {} bytes, in one window: {}", tokens, s.bytes, length_label(tokens, s.train_length)),
        costs(s.loss(), s.bits_per_byte())};
  }

  // On a terminal the text in colours, elsewhere a line per token; then what it costs by position.
  void print_text(const ScoredText& scored) const {
    const auto n = static_cast<int64_t>(scored.tokens.size());
    for (int64_t i = 0; i < n && !summary_; ++i) print_token(i, scored.tokens[static_cast<size_t>(i)]);
    if (!summary_) fmt::print("\n");
    for (const std::string& fact : facts(scored)) fmt::print("{}\n", fact);
    print_by_context(loss_by_position(losses_of(scored), n), scored.train_length);
    flush_output();
  }

  // Of the 256-colour cube: from the terminal's black over blue and violet to red.
  static int colour(double surprisal) {
    constexpr int kColours[] = {16, 17, 18, 54, 90, 126, 161, 160, 196};
    const auto last = static_cast<double>(std::size(kColours) - 1);
    return kColours[static_cast<size_t>(std::clamp(surprisal / 1.5, 0.0, last))];
  }

  void print_json(const ScoredText& scored) const {
    Json json{{"model", args[0]},
              {"train_length", scored.train_length},
              {"tokens", scored.tokens.size()},
              {"bytes", scored.bytes},
              {"loss", scored.loss()},
              {"perplexity", std::exp(scored.loss())},
              {"bits_per_byte", scored.bits_per_byte()},
              {"seconds", scored.seconds},
              {"surprisal", Json::array()}};
    if (summary_) json.erase("surprisal");
    for (size_t i = 0; i < scored.tokens.size() && !summary_; ++i) {
      const ScoredToken& t = scored.tokens[i];
      json["surprisal"].push_back({{"id", t.id}, {"text", t.text}, {"bits", bits(t.loss)}});
    }
    show_json(json, 2);
    flush_output();
  }

  void write_page(const ScoredText& scored) const {
    ScorePage page{.model = args[0], .facts = facts(scored), .train_length = scored.train_length};
    for (const ScoredToken& t : scored.tokens) page.pieces.push_back({t.text, bits(t.loss)});
    write_atomically(html_, score_page_html(page));
  }

  bool json_ = false, summary_ = false;
  std::string html_;
  UnboundedConfig unbounded_;
  ModelOptions model_;
};

}  // namespace

std::unique_ptr<Command> make_score_command() { return std::make_unique<ScoreCommand>(); }

}  // namespace longshot
