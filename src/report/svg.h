// Charts as inline SVG. Colours are classes that the page's style sheet fills, so that they follow light,
// dark and print; hovering shows <title>s; a series is a group with data-series, so that the legend can hide
// it.
#pragma once
#include <string>

#include "report/chart.h"

namespace longshot {

std::string chart_svg(const Chart& chart);

// One triangle of queries (down) and keys (across) per head: how much of the attention the bias leaves to a
// key when all keys match equally well, exp(b_h(i - j)) relative to the row's largest. It covers `tokens`
// tokens; a cell may stand for several. Of many heads the first are drawn.
inline constexpr int64_t kMostBiasMatrices = 64;
std::string bias_matrices_svg(const Biases& biases, int64_t tokens);

}  // namespace longshot
