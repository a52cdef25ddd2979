#include "report/score_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/text.h"

namespace longshot {
namespace {

constexpr double kMostBits = 12;  // full colour

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ink:#1c2126;--paper:#fff;--soft:#5a646e;--hot:213,94,0}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaee;--paper:#14181c;--soft:#9aa6b2;--hot:255,138,61}}
body{margin:0 auto;max-width:60rem;padding:2rem 1rem;background:var(--paper);color:var(--ink);font:16px/1.7 system-ui,sans-serif}
p.facts{color:var(--soft);margin:.1rem 0}
.text{white-space:pre-wrap;overflow-wrap:anywhere;margin-top:1.5rem}
.text span{background:rgba(var(--hot),var(--b));border-radius:2px}
hr{border:0;border-top:2px dashed var(--soft);margin:.6rem 0}
hr+small{color:var(--soft)}
)";

}  // namespace

std::string score_page_html(const ScorePage& page) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n<meta "
      "http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n<meta name=\"viewport\" "
      "content=\"width=device-width, "
      "initial-scale=1\"/>\n<title>Surprisal: {0}</title>\n<style>{1}</style></head>\n<body>\n<h1>Surprisal, token by "
      "token</h1>\n<p class=\"facts\">{0}</p>\n",
      escape_html(page.model), kStyle);
  for (const std::string& fact : page.facts) out += fmt::format("<p class=\"facts\">{}</p>\n", escape_html(fact));
  out +=
      "<p class=\"facts\">The stronger the colour, the less the model expected the token; point at one for its "
      "bits.</p>\n"
      "<div class=\"text\">";
  int64_t at = 0;
  for (const ScoredPiece& piece : page.pieces) {
    if (at++ == page.train_length)
      out += fmt::format("<hr/><small>here the text passes the training length, {}</small>\n", page.train_length);
    const double share = std::clamp(piece.bits / kMostBits, 0.0, 1.0);
    out += fmt::format("<span style=\"--b:{:.2f}\" title=\"token {}: {:.2f} bits\">{}</span>", 0.85 * share, at,
                       piece.bits, escape_html(piece.text));
  }
  return out + "</div>\n</body></html>\n";
}

}  // namespace longshot
