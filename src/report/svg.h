// Charts as inline SVG. Colours are classes that the page's style sheet fills, so that they follow light,
// dark and print; hovering shows <title>s; a series is a group with data-series, so that the legend can hide
// it.
#pragma once
#include <string>

#include "report/chart.h"

namespace longshot {

// 520 units wide, text of 11 and 12: readable from a telephone's width to a printed page's. Bars lie, so that their
// names have room.
std::string chart_svg(const Chart& chart);
double chart_svg_height(const Chart& chart);

// A piece of a series' line with its marker, for the legend.
std::string key_svg(const Chart& chart, const Series& series);

// One triangle of queries (down) and keys (across) per head: how much of the attention the bias leaves to a
// key when all keys match equally well, exp(b_h(i - j)) relative to the row's largest. It covers `tokens`
// tokens; a cell may stand for several. Of many heads the first are drawn. One SVG per head, in a <div> that wraps them.
inline constexpr int64_t kMostBiasMatrices = 64;
std::string bias_matrices_html(const Biases& biases, int64_t tokens);

}  // namespace longshot
