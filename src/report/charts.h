// The report's charts, from results.
#pragma once
#include <vector>

#include "report/chart.h"
#include "report/findings.h"

namespace longshot {

// Perplexity against test length, a chart per protocol and training length, the paper's curves as overlays.
std::vector<Chart> perplexity_charts(const Results& results);
// The first method trained at every length against the others trained at the tested length (the paper's
// Figure 4); empty() with fewer than two training lengths.
Chart grid_chart(const Results& results);
std::vector<Chart> position_loss_charts(const Results& results);
// Two charts per training length: curse relief, and what context beyond L gains or costs.
std::vector<Chart> decomposition_charts(const Results& results);
// Training speed, evaluation speed, training memory, each relative to a reference method, beside the paper's.
std::vector<Chart> cost_charts(const Results& results);
std::vector<Chart> training_charts(const Results& results);
// Perplexity at a length against training time, a chart per length that was validated at while training.
std::vector<Chart> time_charts(const Results& results);

// All of the above that are not empty, in this order.
std::vector<Chart> all_charts(const Results& results);

// Of kPalette: groups of one label have one colour, in all charts.
int colour_of(const std::vector<Group>& groups, const std::string& label);

// The method others are measured against: sinusoidal, else no position, else the first.
std::string reference_method(const Results& results);
// The training length at which most methods were run; the shortest of those.
int64_t main_train_length(const std::vector<Group>& groups);

}  // namespace longshot
