#include "generate/score.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/prompt.h"
#include "evaluate/summary.h"
#include "report/score_page.h"

namespace longshot {
namespace {

double bits(float loss) { return loss / std::log(2.0); }

class ScoreCommand : public Command {
 public:
  Arguments arguments() const override { return {"RUN FILE", 2, 2}; }

  void options(Options& o) override {
    o.add("json", json_, "print JSON instead of text");
    o.add("html", html_, "write the coloured text to this file, a page that needs nothing else");
    model_.fields(o);
  }

  int run() override {
    if (!html_.empty()) require_writable(html_);
    Progress progress;
    ModelSession session(model_, args[0], progress);
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
        fmt::format("loss {:.4f} nats per token, perplexity {:.3f}, {:.4f} bits per byte", s.loss(), std::exp(s.loss()),
                    s.bits_per_byte())};
  }

  // On a terminal the text in colours, elsewhere a line per token; then what it costs by position.
  void print_text(const ScoredText& scored) const {
    const bool colours = ::isatty(STDOUT_FILENO);
    for (size_t i = 0; i < scored.tokens.size(); ++i) {
      const ScoredToken& t = scored.tokens[i];
      if (colours) {
        fmt::print("\x1b[48;5;{}m{}\x1b[0m", colour(bits(t.loss)), printable(t.text, true));
      } else {
        fmt::print("{}\t{:.4f}\t{}\n", i, bits(t.loss), printable(t.text));
      }
    }
    fmt::print("\n");
    for (const std::string& fact : facts(scored)) fmt::print("{}\n", fact);
    fmt::print("\n{:>14} {:>8} {:>10}\n", "context", "tokens", "bits");
    const auto n = static_cast<int64_t>(scored.tokens.size());
    for (const PositionLoss& p : loss_by_position(losses_of(scored), n)) {
      fmt::print("{:>14} {:>8} {:>10.3f}{}\n", fmt::format("{}..{}", p.from, p.to - 1), p.tokens,
                 p.loss.value_or(NAN) / std::log(2.0), p.from >= scored.train_length ? "  beyond training length" : "");
    }
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
    for (const ScoredToken& t : scored.tokens)
      json["surprisal"].push_back({{"id", t.id}, {"text", t.text}, {"bits", bits(t.loss)}});
    fmt::print("{}\n", dump_json(json, 2));
    flush_output();
  }

  void write_page(const ScoredText& scored) const {
    ScorePage page{.model = args[0], .facts = facts(scored), .train_length = scored.train_length};
    for (const ScoredToken& t : scored.tokens) page.pieces.push_back({t.text, bits(t.loss)});
    write_atomically(html_, score_page_html(page));
  }

  bool json_ = false;
  std::string html_;
  ModelOptions model_;
};

}  // namespace

std::unique_ptr<Command> make_score_command() { return std::make_unique<ScoreCommand>(); }

}  // namespace longshot
