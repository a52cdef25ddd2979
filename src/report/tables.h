// The report's tables, from results. perplexity_tables is in table.h.
#pragma once
#include <vector>

#include "report/findings.h"
#include "report/table.h"

namespace longshot {

Table answer_table(const std::vector<Answer>& all, const EvalProtocol& protocol, const std::string& unit);
Table configuration_table(const std::vector<Group>& groups);
Table extrapolation_table(const std::vector<Extrapolation>& all);
Table saving_table(const std::vector<Saving>& all);
Table sooner_table(const std::vector<Sooner>& all);
Table cost_table(const Results& results);

// What a terminal shows: the perplexities, then the answer.
std::vector<Table> result_tables(const Results& results);

// What a paper may want, in the page's order; none is empty.
std::vector<Table> paper_tables(const Results& results);

// The records themselves, one row each.
Table run_table(const Results& results);
Table eval_table(const Results& results);
Table position_loss_table(const Results& results);
Table decomposition_table(const Results& results);
Table curve_table(const Results& results);
Table bias_table(const Results& results);

}  // namespace longshot
