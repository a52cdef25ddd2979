#include "cli/info_hf.h"

#include "base/printable.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "formats/hf_directory.h"

namespace longshot {
namespace {

void print_text(const HfModel& model, const SourceTensors& tensors, int64_t parameters) {
  const ModelConfig& c = model.config;
  fmt::print("family        {}\nparameters    {} ({})\n", model.family->name, parameters,
             count_text(static_cast<double>(parameters)));
  for (const std::string& refusal : model.json.refusals()) fmt::print("not supported {}\n", printable(refusal));
  if (model.json.refusals().empty()) {
    fmt::print("model         {} layers, dim {}, {} heads of {}, ffn {}, vocabulary {}\n", c.layers, c.dim, c.heads,
               c.head_dim(), c.ffn_dim(), c.vocab);
    fmt::print("position      {} ({})\ntrain length  {}\n", c.position, position_method(c.position).summary, c.length);
  }
  for (const SourceTensor& t : tensors.all())
    fmt::print("{:<5} {:<16} {}\n", dtype_name(t.dtype), shape_text(t.shape), printable(t.name));
}

}  // namespace

bool print_hf_info(const fs::path& path, bool json) {
  if (!is_hf_directory(path)) return false;
  const HfModel model = read_hf_model(path);
  const SourceTensors tensors = open_hf_tensors(path);
  int64_t parameters = 0;
  Json listed = Json::array();
  for (const SourceTensor& t : tensors.all()) {
    parameters += element_count(t.shape).value_or(0);
    listed.push_back({{"name", t.name}, {"dtype", dtype_name(t.dtype)}, {"shape", t.shape}});
  }
  if (!json) {
    print_text(model, tensors, parameters);
    return true;
  }
  Json all{{"family", model.family->name}, {"parameters", parameters}, {"refused", model.json.refusals()}};
  if (model.json.refusals().empty()) all["model"] = model.config.to_json();
  all["tensors"] = listed;
  fmt::print("{}\n", dump_json(all, 2));
  return true;
}

}  // namespace longshot
