// A table of results, made once and shown four ways: on the terminal, as CSV, as HTML, in LaTeX.
#pragma once
#include <string>
#include <vector>

#include "run/results.h"

namespace longshot {

struct Cell {
  std::string text;  // for people
  std::string raw;   // for programs: full precision, "" where nothing is known
  bool best = false;
  bool number = false;
};

Cell text_cell(const std::string& text);
Cell number_cell(const OptionalNumber& value, int decimals);
Cell count_cell(const OptionalCount& value);

struct Table {
  std::string id;  // file name of the CSV, anchor in the page
  std::string title, note;
  std::vector<std::string> header;
  std::vector<std::vector<Cell>> rows;
};

// Columns aligned, numbers to the right, the best of a column marked with a star.
std::string terminal_text(const Table& table);
std::string csv_text(const Table& table);  // RFC 4180
std::string html_text(const Table& table);
inline constexpr std::string_view kLatexBeginning = "% In the preamble: \\usepackage{booktabs,graphicx}\n";
// The first two lines of ID.tex: by them a table that nobody changed or copied is known.
std::string latex_head(const std::string& id, std::string_view rest);
std::string latex_text(const Table& table);  // in booktabs' style, the best in bold, the note in the caption

// Perplexity by method and test length, one table per protocol, seeds averaged: what eval and compare print.
std::vector<Table> perplexity_tables(const Results& results);

// "28.46", "406", "1.2e+05": as many digits as differences in perplexity deserve.
std::string perplexity_text(double perplexity);

}  // namespace longshot
