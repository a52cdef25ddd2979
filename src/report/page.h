// The report: one HTML file that needs nothing else, neither network nor other files.
#pragma once
#include <string>

#include "run/results.h"

namespace longshot {

struct PageOptions {
  std::string chart_js;  // the text of Chart.js; empty: the charts stay static drawings, and the page says so
  std::string note;      // shown at the end, e.g. why figure files are missing
};

// The custom properties that page.css and the charts take their colours from: light, dark and print.
std::string page_colours();

inline constexpr std::string_view kPageBeginning =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ";
std::string page_html(const Results& results, const PageOptions& options);

}  // namespace longshot
