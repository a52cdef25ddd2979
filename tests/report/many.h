// Results with any number of methods and seeds, for the look of the page.
#pragma once
#include "report/sample.h"

namespace longshot {

inline Results many_results(size_t methods, int64_t seeds, int64_t train_length = 64) {
  const char* names[] = {"sinusoidal", "alibi", "rotary",   "t5",   "none", "learned",
                         "kerple",     "xpos",  "sandwich", "fire", "cape", "shortformer"};
  Results results = sample_results();
  results.runs.clear();
  for (size_t m = 0; m < methods; ++m)
    for (const int64_t length : {train_length, 2 * train_length})
      for (int64_t seed = 1; seed <= seeds; ++seed) {
        RunRecord run = sample_run(names[m], length, seed, 1 + 0.03 * static_cast<double>(m));
        std::erase_if(run.curve, [](const MetricsRecord& point) { return point.step % 20 != 0; });
        const double shift = 0.04 * static_cast<double>(m);
        for (EvalRecord& e : run.evals) e.loss = *e.loss + shift, e.perplexity = std::exp(*e.loss);
        for (PositionLoss& p : run.per_position) p.loss = *p.loss + shift;
        results.runs.push_back(std::move(run));
      }
  return results;
}

}  // namespace longshot
