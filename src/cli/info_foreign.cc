#include "cli/info_foreign.h"

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/quantity.h"
#include "cli/command.h"

namespace longshot {

void print_foreign(const ForeignModel& model) {
  const ModelConfig& c = model.config;
  fmt::print("family        {}\nparameters    {} ({})\n", printable(model.family), model.parameters,
             count_text(static_cast<double>(model.parameters)));
  for (const std::string& refusal : model.refused) fmt::print("not supported {}\n", printable(refusal));
  if (!model.refused.empty()) return;
  fmt::print("model         {} layers, dim {}, {} heads of {}, ffn {}, vocabulary {}\n", c.layers, c.dim, c.heads,
             c.head_dim(), c.ffn_dim(), c.vocab);
  fmt::print("position      {} ({})\ntrain length  {}\n", c.position, position_method(c.position).summary, c.length);
}

Json foreign_json(const ForeignModel& model) {
  Json json{{"family", model.family}, {"parameters", model.parameters}, {"refused", model.refused}};
  if (model.refused.empty()) json["model"] = model.config.to_json();
  return json;
}

}  // namespace longshot
