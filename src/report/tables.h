// The report's tables, from results. perplexity_tables is in table.h.
#pragma once
#include <vector>

#include "report/summary.h"
#include "report/table.h"

namespace longshot {

Table extrapolation_table(const std::vector<Extrapolation>& all);
Table saving_table(const std::vector<Saving>& all);
Table cost_table(const Results& results);

// The records themselves, one row each.
Table run_table(const Results& results);
Table eval_table(const Results& results);
Table position_loss_table(const Results& results);
Table decomposition_table(const Results& results);
Table curve_table(const Results& results);
Table bias_table(const Results& results);

}  // namespace longshot
