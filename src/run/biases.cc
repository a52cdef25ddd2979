#include "run/biases.h"

#include <algorithm>

namespace longshot {

std::optional<Biases> biases_of(Transformer& model, int64_t distances) {
  model.prepare_positions(std::min(distances, model.position().max_length()));
  const DistanceBias bias = model.position().bias(0);
  Biases out{.heads = model.config().heads, .layer = 0};
  if (bias.kind == DistanceBias::Kind::kLinear) out.slopes.assign(bias.slopes.begin(), bias.slopes.end());
  if (bias.kind == DistanceBias::Kind::kTable) {
    for (int64_t h = 0; h < bias.table.rows; ++h) {
      std::vector<double> row;
      for (int64_t d = 0; d < bias.table.cols; ++d) row.push_back(bias.table(h, bias.table.cols - 1 - d));
      out.table.push_back(std::move(row));
    }
  }
  if (out.slopes.empty() && out.table.empty()) return std::nullopt;
  return out;
}

}  // namespace longshot
