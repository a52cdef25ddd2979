// A text with every token coloured by what it cost: one HTML file that needs nothing else.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace longshot {

struct ScoredPiece {
  std::string text;
  double bits = 0;  // surprisal, -log2 p
};

struct ScorePage {
  std::string model;               // as it was named
  std::vector<std::string> facts;  // a line each, above the text
  int64_t train_length = 0;        // where the text passes it, a mark stands
  std::vector<ScoredPiece> pieces{};
};

std::string score_page_html(const ScorePage& page);

}  // namespace longshot
