#include "report/page.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/assets.h"
#include "report/charts.h"
#include "report/findings.h"
#include "report/svg.h"
#include "report/tables.h"
#include "report/text.h"

namespace longshot {
namespace {

constexpr const char* kLight =
    "color-scheme:light;--paper:#fff;--ink:#1c2126;--soft:#5a646e;--faint:#e3e7eb;--panel:#f5f7f9;--link:#"
    "0b5a94;";
constexpr const char* kDark =
    "color-scheme:dark;--paper:#14181c;--ink:#e6eaee;--soft:#9aa6b2;--faint:#2c343c;--panel:#1d242b;--link:#"
    "7cc0f5;";

std::string chart_html(const Chart& chart) {
  const bool bars = chart.kind == Chart::Kind::kBars;
  std::string out = fmt::format(
      "<figure class=\"chart{}\" id=\"chart-{}\"><h3>{}</h3>\n<div class=\"legend\" role=\"group\" "
      "aria-label=\"Show or hide in: {}\">",
      bars ? " bars" : "", escape_html(chart.id), escape_html(chart.title), escape_html(chart.title));
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Series& s = chart.series[i];
    out += fmt::format(
        "<button type=\"button\" class=\"c{}{}\" data-series=\"{}\" aria-pressed=\"{}\">{}<span>{}</span></button>",
        s.colour, s.overlay ? " overlay" : "", i, !s.overlay, key_svg(chart, s), escape_html(s.label));
  }
  return out + fmt::format(
                   "</div>\n<div class=\"plot\" style=\"--height:{:g}\">{}<canvas role=\"img\" "
                   "aria-label=\"{}\"></canvas></div>\n<p class=\"note\">{}</p></figure>\n",
                   chart_svg_height(chart), chart_svg(chart), escape_html(chart.in_words()),
                   escape_html(chart.caption()));
}

std::string charts_html(const std::vector<Chart>& charts) {
  std::string out = "<div class=\"charts\">\n";
  for (const Chart& chart : charts) out += chart_html(chart);
  return out + "</div>\n";
}

// Sections number themselves in the navigation; an empty body leaves the section out.
struct Section {
  const char* id;
  const char* title;
  const char* lead;  // HTML
  std::string body;  // HTML
};

constexpr size_t kMostCards = 8;  // more are a wall, and the table says the same

std::string cards_html(const std::vector<Group>& groups, const std::vector<Extrapolation>& all) {
  std::string out = "<div class=\"cards\">\n";
  for (const Extrapolation& e : all) {
    out += fmt::format(
        "<div class=\"card c{}\"><div class=\"method\">{}</div><div class=\"verdict\">{}</div><div "
        "class=\"numbers\">{} at {} → {} at {}<br/>{:.3g} times the length</div></div>\n",
        colour_of(groups, e.group->label), escape_html(e.group->text()), e.verdict(),
        perplexity_text(e.at_train_length), e.group->train_length, perplexity_text(e.at_longest), e.longest,
        static_cast<double>(e.longest) / static_cast<double>(e.group->train_length));
  }
  return out + "</div>\n";
}

Section findings_section(const Results& results, const std::vector<Group>& groups, const EvalProtocol& protocol) {
  Section section{"findings", "What was found",
                  "Each model was trained on short sequences and tested, unchanged, on longer ones. "
                  "Perplexity: lower is better.",
                  ""};
  const auto lengths = lengths_of(results, protocol);
  if (const auto rows = answers(groups, protocol, lengths); !rows.empty())
    section.body += html_text(answer_table(rows, protocol, unit_of(results)));
  if (const auto all = extrapolations(groups, protocol, lengths); !all.empty())
    section.body += (all.size() <= kMostCards ? cards_html(groups, all) : "") + html_text(extrapolation_table(all));
  if (!section.body.empty()) section.body += html_text(configuration_table(groups));
  return section;
}

// The headline's pair, and the others on demand.
std::string sooner_html(const std::vector<Sooner>& all, const Saving& headline) {
  if (all.empty()) return "";
  std::vector<Sooner> main = all;
  std::erase_if(main, [&](const Sooner& s) { return s.shorter != headline.shorter || s.longer != headline.longer; });
  std::string out = main.empty() ? "" : html_text(sooner_table(main));
  if (main.size() == all.size()) return out;
  Table every = sooner_table(all);
  every.id += "-all", every.title = "How much sooner, every pair";
  return out + "<details><summary>How much sooner, every pair</summary>" + html_text(every) + "</details>\n";
}

Section saving_section(const std::vector<Group>& groups, const EvalProtocol& protocol) {
  Section section{"saving", "The saving",
                  "The paper's main claim: a model trained at L and tested at 2L does as well as one trained "
                  "at 2L, for less time and "
                  "memory. In the paper (1.3 billion parameters, equal training time) ALiBi trained at 1024 "
                  "and tested at 2048 reached "
                  "8.92, sinusoidal trained at 2048 reached 9.01; it needed 11% less memory and got to a "
                  "given perplexity 11% sooner.",
                  ""};
  const auto all = savings(groups, protocol);
  if (all.empty()) return section;
  section.body += fmt::format("<p class=\"headline\">{}</p>\n", escape_html(all[0].sentence()));
  section.body += sooner_html(sooner(groups), all[0]);
  std::vector<Saving> main = all;
  std::erase_if(main, [&](const Saving& s) { return s.shorter->position != all[0].shorter->position; });
  section.body += html_text(saving_table(main));
  if (main.size() < all.size()) {
    Table every = saving_table(all);
    every.id += "-all", every.title = "Every method trained short";
    section.body += "<details><summary>Every method trained short</summary>" + html_text(every) + "</details>\n";
  }
  return section;
}

Section perplexity_section(const Results& results) {
  Section section{"perplexity", "Perplexity against length",
                  "Both axes are logarithmic. The dashed vertical line marks the training length. Click a name to hide "
                  "it, point at a line to read it.",
                  ""};
  const auto charts = perplexity_charts(results);
  if (charts.empty()) return section;
  const bool overlays = std::any_of(charts.begin(), charts.end(), [](const Chart& c) {
    return std::any_of(c.series.begin(), c.series.end(), [](const Series& s) { return s.overlay; });
  });
  if (overlays)
    section.body +=
        "<p class=\"controls\"><button type=\"button\" id=\"overlay\" aria-pressed=\"false\">Show the "
        "paper's curves</button> "
        "<span class=\"note\">WikiText-103, 247M parameters, shifted to start at our point: lengths as "
        "multiples of the training "
        "length, perplexity relative to that at the training length.</span></p>\n";
  section.body += charts_html(charts);
  return section;
}

Section grid_section(const Results& results) {
  Section section{"grid", "Every training length, every test length",
                  "Read along a row: one model, tested further and further. Read down a column: who is best "
                  "at that length.",
                  ""};
  if (const Chart chart = grid_chart(results); !chart.empty()) section.body += charts_html({chart});
  for (const Table& table : perplexity_tables(results)) section.body += html_text(table);
  return section;
}

Section positions_section(const Results& results) {
  Section section{"positions", "Loss by position",
                  "The first tokens of a window have little context and cost more; this is the early-token "
                  "curse. A curve that rises past the "
                  "training length shows harm, one that goes on falling shows use of the longer context.",
                  ""};
  const auto charts = position_loss_charts(results);
  if (!charts.empty()) section.body = charts_html(charts);
  return section;
}

Section decomposition_section(const Results& results) {
  Section section{"decomposition", "Where the gain comes from",
                  "A longer window changes the loss in two ways: fewer tokens stand near its start, and "
                  "tokens get more context than "
                  "was trained. The two terms add up to the measured change.",
                  ""};
  const auto charts = decomposition_charts(results);
  if (charts.empty()) return section;
  section.body = charts_html(charts) + "<details><summary>The numbers</summary>" +
                 html_text(decomposition_table(results)) + "</details>\n";
  return section;
}

Section cost_section(const Results& results) {
  Section section{"cost", "Speed and memory", "What a method costs, beside what it cost in the paper.", ""};
  const auto charts = cost_charts(results);
  if (!charts.empty()) section.body = charts_html(charts) + html_text(cost_table(results));
  return section;
}

Section training_section(const Results& results) {
  Section section{"training", "Training", "All methods see the same batches in the same order.", ""};
  const auto charts = training_charts(results), times = time_charts(results);
  if (!times.empty()) section.body += charts_html(times);
  if (!charts.empty()) section.body += charts_html(charts);
  return section;
}

Section bias_section(const Results& results) {
  Section section{"biases", "What the heads see",
                  "Queries go down, keys across, as in the paper's Figure 3; one matrix per head. The "
                  "stronger the colour, the more attention the "
                  "bias leaves to a key when all keys match equally well. Point at a diagonal for its value.",
                  ""};
  const auto groups = groups_of(results);
  for (const std::string& position : positions_of(results)) {
    const auto run = std::find_if(results.runs.begin(), results.runs.end(),
                                  [&](const RunRecord& r) { return r.position == position && r.biases; });
    if (run == results.runs.end()) continue;
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.position == position; });
    section.body +=
        fmt::format("<figure class=\"c{}\"><h3>{}: {} heads{}{}, {} tokens</h3>{}</figure>\n",
                    colour_of(groups, group->label), escape_html(method_title(position)), run->biases->heads,
                    run->biases->heads > kMostBiasMatrices ? fmt::format(" (the first {})", kMostBiasMatrices) : "",
                    run->biases->slopes.empty() ? fmt::format(", layer {}, learned", run->biases->layer + 1) : "",
                    run->train_length, bias_matrices_html(*run->biases, run->train_length));
  }
  return section;
}

Section origin_section(const Results& results, const PageOptions& options) {
  Section section{"origin", "How these numbers were made", "Everything needed to make them again.", ""};
  const auto item = [](const char* name, const std::string& value) {
    return value.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, escape_html(value));
  };
  const auto number = [](const OptionalCount& n) { return n ? fmt::format("{}", *n) : ""; };
  section.body +=
      "<dl>\n" + item("Program", "longshot " + results.version) + item("Date", results.date) +
      item("Processor", results.machine.cpu) + item("Threads", number(results.machine.threads)) +
      item("Memory", results.machine.memory_bytes
                         ? fmt::format("{:.1f} GiB", static_cast<double>(*results.machine.memory_bytes) / (1 << 30))
                         : "") +
      item("Data", results.data.name) + item("Tokenizer", results.data.tokenizer) +
      item("Vocabulary", number(results.data.vocabulary)) + item("Training tokens", number(results.data.train_tokens)) +
      "</dl>\n";
  if (!results.command.empty())
    section.body += fmt::format("<h3>Command</h3>\n<pre>{}</pre>\n", escape_html(results.command));
  if (!results.config.empty())
    section.body +=
        fmt::format("<details><summary>Configuration</summary><pre>{}</pre></details>\n", escape_html(results.config));
  section.body += html_text(run_table(results));
  section.body += "<details><summary>Every evaluation</summary>" + html_text(eval_table(results)) + "</details>\n";
  section.body += "<p class=\"downloads\">Records as CSV:";
  for (const Table& table : {run_table(results), eval_table(results), position_loss_table(results),
                             decomposition_table(results), curve_table(results), bias_table(results)})
    if (!table.rows.empty())
      section.body += fmt::format(" <a download=\"{0}.csv\" href=\"data:text/csv;charset=utf-8,{1}\">{0}</a>", table.id,
                                  escape_url(csv_text(table)));
  section.body += "</p>\n";
  if (!options.note.empty()) section.body += fmt::format("<p class=\"note\">{}</p>\n", escape_html(options.note));
  return section;
}

// What is still to come.
std::string unfinished_html(const Results& results) {
  size_t finished = 0, begun = 0;
  for (const RunRecord& run : results.runs) ++(run.finished() ? finished : begun);
  const size_t planned = std::max(results.planned_runs.size(), results.runs.size());
  if (finished == planned) return "";
  return fmt::format(
      "<p class=\"warning\">Not finished: {} of {} models are trained and tested, {} in training. What follows is of "
      "those.</p>\n",
      finished, planned, begun);
}

std::string facts_line(const Results& results) {
  std::vector<std::string> facts;
  for (const std::string& fact : {results.data.name, results.machine.cpu, results.date})
    if (!fact.empty()) facts.push_back(escape_html(fact));
  facts.push_back("longshot " + escape_html(results.version));
  return fmt::format("{}", fmt::join(facts, " · "));
}

// Inside a script element "<" could begin an end tag or a comment; in JSON it can be spelt otherwise.
std::string script_json(const Json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace))
    out += c == '<' ? "\\u003c" : std::string(1, c);
  return out;
}

}  // namespace

std::string page_colours() {
  std::string light = kLight, dark = kDark, classes;
  for (int c = 0; c < kPaletteSize; ++c) {
    light += fmt::format("--c{}:{};", c, kPalette[c].light);
    dark += fmt::format("--c{}:{};", c, kPalette[c].dark);
    classes += fmt::format(".c{0}{{--series:var(--c{0})}}\n", c);
  }
  return fmt::format(
      ":root{{{0}}}\n@media (prefers-color-scheme: dark){{:root:not([data-theme=\"light\"]){{{1}}}}}\n"
      ":root[data-theme=\"dark\"]{{{1}}}\n@media print{{:root:root:root{{{0}}}}}\n{2}",
      light, dark, classes);
}

std::string page_html(const Results& results, const PageOptions& options) {
  const auto groups = groups_of(results);
  const auto protocols = protocols_of(results);
  std::vector<Section> sections;
  if (!protocols.empty()) {
    sections.push_back(findings_section(results, groups, protocols[0]));
    sections.push_back(perplexity_section(results));
    sections.push_back(saving_section(groups, protocols[0]));
    sections.push_back(grid_section(results));
  }
  sections.push_back(positions_section(results));
  sections.push_back(decomposition_section(results));
  sections.push_back(cost_section(results));
  sections.push_back(training_section(results));
  sections.push_back(bias_section(results));
  sections.push_back(origin_section(results, options));
  std::erase_if(sections, [](const Section& s) { return s.body.empty(); });

  std::string navigation, body;
  for (const Section& s : sections) {
    navigation += fmt::format("<a href=\"#{}\">{}</a>\n", s.id, s.title);
    body += fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n{}</section>\n", s.id, s.title, s.lead, s.body);
  }
  Json charts = Json::array();
  for (const Chart& chart : all_charts(results)) charts.push_back(chart.to_json());

  // The policy allows nothing to be loaded, from anywhere.
  std::string out(kPageBeginning);
  out +=
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>Train short, test long</title>\n<style>\n";
  out += page_colours() + kPageStyle;
  out += fmt::format(
      "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the results</a>\n<header>\n<h1>Train short, "
      "test long</h1>\n<p "
      "class=\"facts\">{}</p>\n<nav aria-label=\"Sections\">\n{}"
      "<button type=\"button\" class=\"theme\" id=\"theme\">Light / "
      "dark</button>\n</nav>\n</header>\n<main id=\"main\" tabindex=\"-1\">\n",
      facts_line(results), navigation);
  out += unfinished_html(results);
  if (options.chart_js.empty())
    out +=
        "<p class=\"warning\">Chart.js was not found when this page was made (Debian package "
        "libjs-chart.js), so the charts are still "
        "drawings: names hide and show lines, but there is no zooming to what is left.</p>\n";
  out += body +
         "</main>\n<footer>ALiBi and the paper's numbers: Press, Smith, Lewis, Train Short, Test Long, arXiv "
         "2108.12409.</footer>\n";
  out += "<script type=\"application/json\" id=\"chart-data\">" + script_json(charts) + "</script>\n";
  if (!options.chart_js.empty()) out += "<script>\n" + options.chart_js + "\n</script>\n";
  out += std::string("<script>\n") + kPageScript + "</script>\n</body>\n</html>\n";
  return out;
}

}  // namespace longshot
