#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "report/summary.h"
#include "report/text.h"

namespace longshot {
namespace {

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string space(width - std::min(width, text_width(text)), ' ');
  return right ? space + text : text + space;
}

// "20.05 ± 0.04": the mean over seeds and their standard deviation, or one seed's standard error over the text.
Cell perplexity_cell(const Measured& measured, bool seeds) {
  const Stat& stat = *measured.stat;
  Cell cell{.text = perplexity_text(stat.mean), .raw = fmt::format("{:.6g}", stat.mean), .number = true};
  if (seeds && stat.count > 1) cell.text += " ± " + perplexity_text(stat.deviation);
  if (!seeds && measured.text_error) cell.text += " ± " + perplexity_text(*measured.text_error);
  return cell;
}

}  // namespace

std::string perplexity_text(double p) {
  if (p < 100) return fmt::format("{:.2f}", p);
  if (p < 1e3) return fmt::format("{:.1f}", p);
  return p < 1e5 ? fmt::format("{:.0f}", p) : fmt::format("{:.1e}", p);
}

Cell text_cell(const std::string& text) { return {.text = text, .raw = text}; }

Cell number_cell(const OptionalNumber& value, int decimals) {
  if (!value) return {.text = "–", .raw = "", .number = true};
  return {.text = fmt::format("{:.{}f}", *value, decimals), .raw = fmt::format("{:.9g}", *value), .number = true};
}

Cell count_cell(const OptionalCount& value) {
  if (!value) return {.text = "–", .raw = "", .number = true};
  return {.text = fmt::format("{}", *value), .raw = fmt::format("{}", *value), .number = true};
}

std::string terminal_text(const Table& table) {
  std::vector<std::vector<std::string>> lines(1);
  for (const std::string& name : table.header) lines[0].push_back(printable(name));
  for (const auto& row : table.rows) {
    auto& line = lines.emplace_back();
    for (const Cell& cell : row) line.push_back(printable(cell.text) + (cell.best ? "*" : ""));
  }
  std::vector<size_t> widths(table.header.size(), 0);
  for (const auto& line : lines)
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], text_width(line[c]));

  std::string out = printable(table.title) + "\n";
  for (size_t r = 0; r < lines.size(); ++r) {
    std::string text;
    for (size_t c = 0; c < lines[r].size(); ++c) {
      const bool right = r > 0 ? table.rows[r - 1][c].number : !table.rows.empty() && table.rows[0][c].number;
      text += (c > 0 ? "  " : "") + padded(lines[r][c], widths[c], right);
    }
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  if (!table.note.empty()) out += printable(table.note) + "\n";
  return out;
}

std::string csv_text(const Table& table) {
  std::string out;
  const auto add = [&](const std::string& field, bool last) { out.append(field).append(last ? "\r\n" : ","); };
  for (size_t c = 0; c < table.header.size(); ++c) add(csv_words(table.header[c]), c + 1 == table.header.size());
  for (const auto& row : table.rows)
    for (size_t c = 0; c < row.size(); ++c)
      add(row[c].number ? csv_field(row[c].raw) : csv_words(row[c].raw), c + 1 == row.size());
  return out;
}

std::string html_text(const Table& table) {
  const std::string id = escape_html(table.id);
  std::string out = fmt::format(
      "<figure class=\"table\" id=\"table-{0}\"><figcaption><span id=\"caption-{0}\">{1}</span> <a class=\"csv\" "
      "download=\"{0}.csv\" href=\"data:text/csv;charset=utf-8,{2}\" aria-label=\"CSV of {1}\">CSV</a> <span "
      "class=\"hint\">wider than the page: scroll sideways →</span></figcaption>\n"
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-labelledby=\"caption-{0}\"><table "
      "aria-labelledby=\"caption-{0}\">\n<thead><tr>",
      id, escape_html(table.title), escape_url(csv_text(table)));
  for (size_t c = 0; c < table.header.size(); ++c) {
    const bool number = !table.rows.empty() && table.rows[0][c].number;
    out += fmt::format("<th scope=\"col\"{}>{}</th>", number ? " class=\"n\"" : "", escape_html(table.header[c]));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t c = 0; c < row.size(); ++c)
      out += fmt::format("<{0}{1}>{2}</{3}>", c == 0 ? "th scope=\"row\"" : "td",
                         row[c].best     ? " class=\"n best\""
                         : row[c].number ? " class=\"n\""
                                         : "",
                         escape_html(row[c].text), c == 0 ? "th" : "td");
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  if (!table.note.empty()) out += fmt::format("<p class=\"note\">{}</p>\n", escape_html(table.note));
  return out + "</figure>\n";
}

namespace {

constexpr size_t kRowsOfAPage = 40;

std::string latex_cell(const Cell& cell) {
  const bool minus = cell.number && cell.text.starts_with('-');
  const std::string text = minus ? "$-$" + escape_latex(cell.text.substr(1)) : escape_latex(cell.text);
  return cell.best ? "\\textbf{" + text + "}" : text;
}

// Rows [first, last) as a float that shrinks to the width of the text where it is wider.
std::string latex_float(const Table& table, const std::string& caption, size_t first, size_t last) {
  std::string columns, header, body;
  for (size_t c = 0; c < table.header.size(); ++c) {
    columns += !table.rows.empty() && table.rows[0][c].number ? 'r' : 'l';
    header += (c > 0 ? " & " : "") + escape_latex(table.header[c]);
  }
  for (size_t r = first; r < last; ++r) {
    for (size_t c = 0; c < table.rows[r].size(); ++c) body += (c > 0 ? " & " : "    ") + latex_cell(table.rows[r][c]);
    body += " \\\\\n";
  }
  return fmt::format(
      "\\begin{{table}}\n  \\centering\n  \\caption{{{}}}\n{}"
      "  \\resizebox{{\\ifdim\\width>\\linewidth \\linewidth\\else\\width\\fi}}{{!}}{{\\begin{{tabular}}{{{}}}\n"
      "    \\toprule\n    {} \\\\\n    \\midrule\n{}    \\bottomrule\n  \\end{{tabular}}}}\n\\end{{table}}\n",
      caption, first == 0 ? fmt::format("  \\label{{tab:{}}}\n", table.id) : "", columns, header, body);
}

}  // namespace

std::string latex_text(const Table& table) {
  const std::string title = escape_latex(table.title);
  const bool ended = title.empty() || std::string_view(".?!").find(title.back()) != std::string_view::npos;
  const std::string caption = title + (ended ? "" : ".") + (table.note.empty() ? "" : " " + escape_latex(table.note));
  std::string text = latex_float(table, caption, 0, std::min(table.rows.size(), kRowsOfAPage));
  for (size_t first = kRowsOfAPage; first < table.rows.size(); first += kRowsOfAPage)
    text += latex_float(table, title + (ended ? "" : ",") + " continued.", first,
                        std::min(table.rows.size(), first + kRowsOfAPage));
  return latex_head(table.id, text) + text;
}

std::string latex_head(const std::string& id, std::string_view rest) {
  return fmt::format("{}% Table {}. What follows had, as written, the CRC-32 {}.\n", kLatexBeginning, id,
                     checksum(std::as_bytes(std::span(rest))));
}

std::vector<Table> perplexity_tables(const Results& results) {
  std::vector<Table> tables;
  const std::vector<Group> groups = groups_of(results);
  const bool seeds = most_seeds(groups) > 1;
  for (const EvalProtocol& protocol : protocols_of(results)) {
    Table table{.id = fmt::format("perplexity-{}", tables.size() + 1),
                .title = fmt::format("Perplexity per {}, {}", unit_of(results), protocol.text()),
                .note = "Rows: method and training length; columns: test length. * or bold: the lowest of a column.",
                .header = {"method", "trained at"},
                .rows = {}};
    const std::vector<int64_t> lengths = lengths_of(results, protocol);
    for (const int64_t length : lengths) table.header.push_back(fmt::format("{}", length));
    for (const Group& group : groups) {
      std::vector<Cell> row{text_cell(group.label), count_cell(group.train_length)};
      bool any = false;
      for (const int64_t length : lengths) {
        const Measured measured = group.perplexity(protocol, length);
        any = any || measured.asked;
        row.push_back(measured.stat ? perplexity_cell(measured, seeds)
                                    : Cell{.text = measured.asked ? "not finite" : "–", .raw = "", .number = true});
      }
      if (any) table.rows.push_back(std::move(row));
    }
    for (size_t c = 2; c < table.header.size() && table.rows.size() > 1; ++c) {
      Cell* best = nullptr;
      for (auto& row : table.rows)
        if (!row[c].raw.empty() && (!best || std::stod(row[c].raw) < std::stod(best->raw))) best = &row[c];
      if (best) best->best = true;
    }
    const auto has_error = [](const std::vector<Cell>& row) {
      return std::any_of(row.begin(), row.end(), [](const Cell& c) { return c.text.find("±") != std::string::npos; });
    };
    if (std::any_of(table.rows.begin(), table.rows.end(), has_error))
      table.note += seeds ? " ±: standard deviation over seeds." : " ±: standard error over the text, of one seed.";
    if (lengths.size() == kMostLengths) table.note += fmt::format(" No more than {} lengths are shown.", kMostLengths);
    if (!table.rows.empty()) tables.push_back(std::move(table));
  }
  if (tables.size() == kMostProtocols)
    tables.back().note += fmt::format(" No more than {} such tables are shown.", kMostProtocols);
  return tables;
}

}  // namespace longshot
