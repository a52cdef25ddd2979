// Figure files for papers, by gnuplot: NAME.pdf, NAME.svg, NAME.png, as wide as one column of two, and NAME.gp with
// data and commands, to change and run again.
#pragma once
#include <string>
#include <vector>

#include "report/chart.h"

namespace longshot {

struct FigureFiles {
  std::vector<fs::path> files;
  std::string note;  // why some are missing, "" if none is
};

// Writes every chart into `dir`. A missing gnuplot is a note, not an error.
FigureFiles write_figures(const std::vector<Chart>& charts, const fs::path& dir, const std::string& gnuplot = "gnuplot",
                          const Watch& watch = {});

inline constexpr const char* kPictureKinds[] = {".pdf", ".svg", ".png"};
inline constexpr std::string_view kScriptBeginning = "# Draws ";
std::string gnuplot_script(const Chart& chart);
// The first two lines of the script ID.gp: by them one that nobody changed or copied is known.
std::string script_head(const std::string& id, std::string_view rest);
// The script, and what was drawn by it.
void remove_figure(const fs::path& script);

}  // namespace longshot
